#!lua flags=allow-oom
-- pause: stops promotes, claims and wake-ups of the queue, until resume or for some time. Pushes, settlements and reaps
--        go on. A pause for some time closes the queue: META's closed_until is the time at which it opens by itself.
--        A pause of nodes drains them: they claim nothing, until resume or their end. Only at the home of the queue.
-- KEYS   the ten of the queue; pause makes them if they do not exist
-- ARGV   now | perhaps for: 1 to 3,155,760,000,000 ms (100 years)
--        now | nodes | node, ...: 1 to 100
-- Reply  {header, OK}; with for {header, OK <closed_until, ms>}, which is later if the queue was closed for longer
--        of nodes {header, {OK | GONE | FULL, ...}}. GONE: it is not alive. FULL: 100 nodes are drained
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(1); of nodes O(nodes)
-- Again  the same; with for it counts again from now

--- use: prelude
--- use: create
local drains = ARGV[2] == 'nodes'
if drains then
  --- use: drain_nodes
end
local wait_ms = ARGV[2] and #ARGV[2] <= 13 and string.find(ARGV[2], '^%d+$') and tonumber(ARGV[2])
if #ARGV ~= 1 and not (#ARGV == 2 and wait_ms and wait_ms >= 1 and wait_ms <= 3155760000000) then
  return redis.error_reply('BADARGS pause takes now, and perhaps for: 1 to 3155760000000 ms; or nodes, node, ...')
end
--- use: needs_map
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
create()
if wait_ms then
  local asked = now_up + wait_ms
  --- use: close_until
  return {finish(longer), 'OK ' .. int(opens)}
end
local changed = not paused
paused = '1'
if changed then
  redis.call('HSET', META, 'paused', paused)
end
return {finish(changed), 'OK'}

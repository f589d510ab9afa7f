#!lua flags=allow-oom
-- resume: ends a pause, opens a closed queue, and wakes nodes for the messages that wait. Resumed nodes, which were
--         drained, claim again. Only at the home of the queue.
-- KEYS   the ten of the queue
-- ARGV   now
--        now | nodes | node, ...: 1 to 100
-- Reply  {header, OK}; of nodes {header, {OK | GONE, ...}}. GONE: it is not alive
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(1); of nodes O(nodes)
-- Again  the same

--- use: prelude
if ARGV[2] == 'nodes' then
  local drains = false
  --- use: drain_nodes
end
if #ARGV ~= 1 then return redis.error_reply('BADARGS resume takes now; or now, nodes, node, ...') end
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
-- Also a time that has passed: the clock may go back. A queue that is full stays so: the next claim closes it again.
local changed = redis.call('HDEL', META, 'paused', 'closed_until', 'break_until') > 0
local head, length = old_head, old_length
paused, closed, old_head, old_length = false, false, math.huge, 1 -- finish sees the head as new: it publishes it
return {finish(changed, false, head, length), 'OK'}

#!lua flags=allow-oom
-- pause: stops promotes, claims and wake-ups of the queue. Pushes, settlements and reaps go on.
-- KEYS   the ten of the queue; pause makes them if they do not exist
-- ARGV   now
-- Reply  {header, OK}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(1)
-- Again  the same

--- use: prelude
--- use: create
if #ARGV ~= 1 then return redis.error_reply('BADARGS pause takes now') end
--- use: needs_map
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
create()
local changed = not paused
paused = '1'
if changed then
  redis.call('HSET', META, 'paused', paused)
end
return {finish(changed), 'OK'}

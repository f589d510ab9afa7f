#!lua flags=allow-oom
-- pause: from now on nothing is promoted, claimed or rung. Pushes, settles and reaps go on.
-- KEYS   the ten of the queue; they are made if they do not exist
-- ARGV   now
-- Reply  {header, OK}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(1)
-- Again  the same

--- use: prelude
--- use: create
if #ARGV ~= 1 then return redis.error_reply('BADARGS pause takes now') end
redis.call('HSTRLEN', META, 'layout') -- an operator's right: who lacks it is refused before anything is written
create()
local changed = not paused
paused = '1'
if changed then redis.call('HSET', META, 'paused', paused) end
return {finish(changed), 'OK'}

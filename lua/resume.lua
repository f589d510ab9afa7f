#!lua flags=allow-oom
-- resume: ends a pause, and rings for what waits.
-- KEYS   the ten of the queue
-- ARGV   now
-- Reply  {header, OK}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(1)
-- Again  the same

--- use: prelude
if #ARGV ~= 1 then return redis.error_reply('BADARGS resume takes now') end
redis.call('HSTRLEN', META, 'layout') -- an operator's right: who lacks it is refused before anything is written
local changed = paused
local head = old_head
paused, old_head = false, math.huge -- so that a head that is due soon is told
if changed then redis.call('HDEL', META, 'paused') end
return {finish(changed, false, head, old_deadline, old_length), 'OK'}

#!lua
-- run_now: makes scheduled messages due now, unless they are due already.
-- KEYS   the ten of the queue
-- ARGV   now | 1 to 1,000 ids
-- Reply  {header, {MOVED <due ms> | ALREADY | LEASED | DEAD | ABSENT | MOVING | AWAY, ...}}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, OOM: nothing was written
-- Cost   O(log n) an id
-- Again  ALREADY, until it is claimed

--- use: fenced_prelude
--- use: away
--- use: state_of
--- use: attrs
--- use: recent_marks
--- use: trim_recent
--- use: repeat_memory
--- use: life
if #ARGV < 2 or #ARGV > 1001 then return redis.error_reply('BADARGS run_now takes now, then 1 to 1000 ids') end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES)
redis.call('ZCARD', DEAD); redis.call('ZCARD', RECENT)
local replies, changed = {}, 0
for i = 2, #ARGV do
  local id = ARGV[i]
  local state = state_of(id)
  if state == 'ready' then
    replies[i - 1] = 'ALREADY'
  elseif state == 'absent' then
    replies[i - 1] = away(id)
  elseif state ~= 'scheduled' then
    replies[i - 1] = string.upper(state)
  elseif tonumber(redis.call('ZSCORE', SCHEDULED, id)) <= now then
    replies[i - 1] = 'ALREADY'
  else
    local failures, crashes, original, options, reason = attrs_of(id)
    redis.call('ZADD', SCHEDULED, now, id)
    if original then
      set_attrs(id, failures, crashes, nil, options, reason)
    end
    remember_end(id)
    if note then
      note(id, 'run_now', int(now))
    end
    replies[i - 1], changed = 'MOVED ' .. int(now), changed + 1
  end
end
write_memory()
return {finish(changed > 0), replies}

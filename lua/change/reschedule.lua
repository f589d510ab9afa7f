#!lua
-- reschedule: gives waiting messages another due (scheduled or ready -> scheduled); the old due is forgotten.
-- KEYS   the ten of the queue
-- ARGV   now | per message, 1 to 1,000: id, due (unix ms, or +ms from now), expected due in ms or empty
-- Reply  {header, {MOVED <due ms> | CONFLICT <due ms> | LEASED | DEAD | ABSENT | MOVING | AWAY |
--        INVALID <why>, ...}}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, OOM: nothing was written
-- Cost   O(log n) a message; one scan of the ready list if one is ready
-- Again  with an absolute due and an expected one: MOVED, or CONFLICT if another call moved it meanwhile; else moves it
--        again

--- use: fenced_prelude
--- use: away
--- use: state_of
--- use: ready_entry
--- use: remove_ready
--- use: attrs
--- use: fresh_options
--- use: due_ms
--- use: recent_marks
--- use: trim_recent
--- use: repeat_memory
--- use: life
local count = (#ARGV - 1) / 3
if count < 1 or count > 1000 or count % 1 ~= 0 then
  return redis.error_reply('BADARGS reschedule takes now, then id, due, expected due for 1 to 1000 messages')
end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES)
redis.call('ZCARD', DEAD); redis.call('ZCARD', RECENT)
local replies, changed, unlisted = {}, 0, {}
local function one(id, due, expected)
  if not due then return 'INVALID due must be unix ms, or + and a delay in ms, at most 100 years ahead' end
  local bad_expected = expected ~= '' and not string.find(expected, '^%d+$')
  if bad_expected then return 'INVALID expected due must be unix ms or empty' end
  local state = state_of(id)
  if state == 'absent' then return away(id) end
  if state ~= 'scheduled' and state ~= 'ready' then return string.upper(state) end
  local ready = state == 'ready' and (ready_entry(id) or '0:')
  local current = ready and string.match(ready, '^%d+') or redis.call('ZSCORE', SCHEDULED, id)
  if tonumber(current) == due then return 'MOVED ' .. int(due) end
  if expected ~= '' and tonumber(expected) ~= tonumber(current) then return 'CONFLICT ' .. int(current) end
  if ready then
    unlisted[ready] = true
  end
  redis.call('ZADD', SCHEDULED, due, id)
  local failures, crashes, original, options, reason = attrs_of(id)
  if original or string.find(options, 'expires_by=', 1, true) then -- only the new due counts from now on
    set_attrs(id, failures, crashes, nil, free_expiry(options), reason)
  end
  if due - now <= REPEAT_MS then
    remember_end(id)
  end
  if note then
    note(id, 'reschedule', int(due))
  end
  changed = changed + 1
  return 'MOVED ' .. int(due)
end
for i = 1, count do
  replies[i] = one(ARGV[3 * i - 1], due_ms(ARGV[3 * i]), ARGV[3 * i + 1])
end
remove_ready(unlisted)
write_memory()
return {finish(changed > 0), replies}

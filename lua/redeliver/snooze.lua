#!lua flags=allow-oom
-- snooze: gives messages a later due (leased -> scheduled); charges no attempt. Its options count the snoozes.
--         A message that expires before that due is dead at once, or dropped if it asks for it (leased -> dead or
--         absent).
-- KEYS   the ten of the queue
-- ARGV   now | per delivery, 1 to 1,000: id, token, due (unix ms, or +ms from now)
-- Reply  {header, {SCHEDULED <due ms> | DEAD | DROPPED | GONE | LOST | INVALID <why>, ...}}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log n) a delivery
-- Again  LOST

--- use: prelude
--- use: attrs
--- use: due_ms
--- use: claim_marks
--- use: has_own_lease
--- use: release_from_claim
--- use: refusal_of
--- use: end_lease
--- use: life_of_deliveries
--- use: bury_marked
--- use: expiry
--- use: later
--- use: next
local count = (#ARGV - 1) / 3
if count < 1 or count > 1000 or count % 1 ~= 0 then
  return redis.error_reply('BADARGS snooze takes now, then id, token, due for 1 to 1000 deliveries')
end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES); redis.call('ZCARD', DEAD)
if redis.call('HGET', META, 'windows_until') then
  find_windowed(count, 2, 3)
end
local replies, changed = {}, 0
for i = 1, count do
  local id, due = ARGV[3 * i - 1], due_ms(ARGV[3 * i + 1])
  local refusal, claim, claimed_due = refusal_of(id, ARGV[3 * i])
  if not due then
    replies[i] = 'INVALID due must be unix ms, or + and a delay in ms, at most 100 years ahead'
  elseif refusal then
    replies[i] = refusal
  else
    local failures, crashes, _, options, reason = attrs_of(id)
    local snoozes = string.match(options, 'snoozes=(%d+)') or 0
    options = fix_expiry((string.gsub(options, ' ?snoozes=%d+', '')), claimed_due)
    options = options .. (options == '' and '' or ' ') .. 'snoozes=' .. int(snoozes + 1)
    if note then
      note(id, 'snooze', nil, attempt_of(id, claim))
    end
    end_lease(id, claim)
    local next_due = start_next(id)
    replies[i] = next_due and 'SCHEDULED ' .. next_due
      or bury_marked(id, claim, failures, crashes, options, reason) and 'DEAD'
      or later(id, due, claimed_due, failures, crashes, options, reason)
    changed = changed + 1
  end
end
if changed > expired + buried then
  redis.call('HINCRBY', META, 'snoozed', changed - expired - buried)
end
if buried > 0 then
  redis.call('HINCRBY', META, 'died', buried)
end
count_expired()
end_claims()
return {finish(changed > 0), replies}

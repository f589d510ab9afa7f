#!lua flags=allow-oom
-- retry: counts a failure and schedules the next attempt (leased -> scheduled), or none at the limit (leased -> dead).
--        The limit is the message's max_attempts, else the queue's, else 20. A message that expires before its next
--        attempt is dead at once, or dropped if it asks for it (leased -> absent).
-- KEYS   the ten of the queue
-- ARGV   now | per delivery, 1 to 1,000: id, token, after in ms, error (its first 1,024 bytes are kept)
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
local count = (#ARGV - 1) / 4
if count < 1 or count > 1000 or count % 1 ~= 0 then
  return redis.error_reply('BADARGS retry takes now, then id, token, after ms, error for 1 to 1000 deliveries')
end
local queue_limit, windows_until = unpack(redis.call('HMGET', META, 'max_attempts', 'windows_until'))
queue_limit = tonumber(queue_limit or 20)
if windows_until then
  find_windowed(count, 2, 4)
end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES); redis.call('ZCARD', DEAD)
local replies, changed, died = {}, 0, 0
for i = 1, count do
  local id, due = ARGV[4 * i - 2], due_ms('+' .. ARGV[4 * i])
  local refusal, claim, claimed_due = refusal_of(id, ARGV[4 * i - 1])
  if not due then
    replies[i] = 'INVALID after must be a delay in ms, at most 100 years'
  elseif refusal then
    replies[i] = refusal
  else
    local failures, crashes, _, options = attrs_of(id)
    local reason = string.sub(ARGV[4 * i + 1], 1, 1024)
    failures, changed = failures + 1, changed + 1
    if note then
      note(id, 'retry', nil, attempt_of(id, claim), reason)
    end
    end_lease(id, claim)
    local next_due = start_next(id)
    if next_due then
      replies[i] = 'SCHEDULED ' .. next_due
    elseif bury_marked(id, claim, failures, crashes, options, reason) then
      replies[i], died = 'DEAD', died + 1
    elseif failures >= tonumber(string.match(options, 'max_attempts=(%d+)') or queue_limit) then
      set_attrs(id, failures, crashes, nil, options, reason)
      redis.call('ZADD', DEAD, now, id)
      replies[i], died = 'DEAD', died + 1
    else
      replies[i] = later(id, due, claimed_due, failures, crashes, options, reason)
    end
  end
end
if changed - died - expired > 0 then
  redis.call('HINCRBY', META, 'retried', changed - died - expired)
end
count_expired()
if died > 0 then
  redis.call('HINCRBY', META, 'died', died)
end
end_claims()
return {finish(changed > 0), replies}

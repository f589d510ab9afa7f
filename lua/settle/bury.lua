#!lua flags=allow-oom
-- bury: declares messages dead (leased -> dead), with a reason; charges no attempt.
-- KEYS   the ten of the queue
-- ARGV   now | per delivery, 1 to 1,000: id, token, reason (its first 1,024 bytes are kept)
-- Reply  {header, {OK | GONE | LOST, ...}}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log n) a delivery
-- Again  LOST

--- use: prelude
--- use: attrs
--- use: claim_marks
--- use: has_own_lease
--- use: release_from_claim
--- use: refusal_of
--- use: end_lease
--- use: next
local count = (#ARGV - 1) / 3
if count < 1 or count > 1000 or count % 1 ~= 0 then
  return redis.error_reply('BADARGS bury takes now, then id, token, reason for 1 to 1000 deliveries')
end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES); redis.call('ZCARD', DEAD)
local replies, changed, died = {}, 0, 0
for i = 1, count do
  local id = ARGV[3 * i - 1]
  local refusal, claim = refusal_of(id, ARGV[3 * i])
  if refusal then
    replies[i] = refusal
  else
    local failures, crashes, _, options = attrs_of(id)
    end_lease(id, claim)
    if not start_next(id) then
      set_attrs(id, failures, crashes, nil, options, string.sub(ARGV[3 * i + 1], 1, 1024))
      redis.call('ZADD', DEAD, now, id)
      died = died + 1
    end
    replies[i], changed = 'OK', changed + 1
  end
end
if died > 0 then
  redis.call('HINCRBY', META, 'died', died)
end
end_claims()
return {finish(changed > 0), replies}

#!lua flags=allow-oom
-- release: gives messages back (leased -> scheduled at the original due, so due at once); charges no attempt.
-- KEYS   the ten of the queue
-- ARGV   now | per delivery, 1 to 1,000: id, token
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
--- use: life_of_deliveries
--- use: bury_marked
--- use: next
local count = (#ARGV - 1) / 2
if count < 1 or count > 1000 or count % 1 ~= 0 then
  return redis.error_reply('BADARGS release takes now, then id, token for 1 to 1000 deliveries')
end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES); redis.call('ZCARD', DEAD)
local replies, changed = {}, 0
for i = 1, count do
  local id = ARGV[2 * i]
  local refusal, claim, due = refusal_of(id, ARGV[2 * i + 1])
  if refusal then
    replies[i] = refusal
  else
    local failures, crashes, _, options, reason = attrs_of(id)
    if note then
      note(id, 'release', nil, attempt_of(id, claim))
    end
    end_lease(id, claim)
    if not start_next(id) and not bury_marked(id, claim, failures, crashes, options, reason) then
      set_attrs(id, failures, crashes, nil, options, reason)
      redis.call('ZADD', SCHEDULED, math.min(due, now), id)
    end
    replies[i], changed = 'OK', changed + 1
  end
end
if changed > buried then
  redis.call('HINCRBY', META, 'released', changed - buried)
end
if buried > 0 then
  redis.call('HINCRBY', META, 'died', buried)
end
end_claims()
return {finish(changed > 0), replies}

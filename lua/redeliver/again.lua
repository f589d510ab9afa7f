#!lua flags=allow-oom
-- again: schedules a repeating message's next tick (leased -> scheduled); its attempts start from zero.
-- KEYS   the ten of the queue
-- ARGV   now | per delivery, 1 to 1,000: id, token, due (unix ms, or +ms from now)
-- Reply  {header, {OK <due ms> | GONE | LOST | INVALID <why>, ...}}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log n) a delivery
-- Again  LOST

--- use: prelude
--- use: attrs
--- use: fresh_options
--- use: due_ms
--- use: claim_marks
--- use: has_own_lease
--- use: release_from_claim
--- use: refusal_of
--- use: end_lease
--- use: life_of_deliveries
--- use: next
local count = (#ARGV - 1) / 3
if count < 1 or count > 1000 or count % 1 ~= 0 then
  return redis.error_reply('BADARGS again takes now, then id, token, due for 1 to 1000 deliveries')
end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES)
local replies, changed = {}, 0
for i = 1, count do
  local id, due = ARGV[3 * i - 1], due_ms(ARGV[3 * i + 1])
  local refusal, claim = refusal_of(id, ARGV[3 * i])
  if not due then
    replies[i] = 'INVALID due must be unix ms, or + and a delay in ms, at most 100 years ahead'
  elseif refusal then
    replies[i] = refusal
  else
    local _, _, _, options = attrs_of(id)
    if note then
      note(id, 'again', nil, attempt_of(id, claim))
    end
    end_lease(id, claim)
    local next_due = start_next(id)
    if not next_due then
      set_attrs(id, 0, 0, nil, fresh_options(options), '')
      redis.call('ZADD', SCHEDULED, due, id)
    end
    replies[i], changed = 'OK ' .. (next_due or int(due)), changed + 1
  end
end
if changed > 0 then
  redis.call('HINCRBY', META, 'repeated', changed)
end
end_claims()
return {finish(changed > 0), replies}

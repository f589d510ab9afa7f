#!lua flags=allow-oom
-- bury: declares messages dead (leased -> dead), with a reason; charges no attempt. Without a token, for an operator:
--       a waiting message dies at once (scheduled or ready -> dead), a leased one when its lease ends without an ack.
-- KEYS   the ten of the queue
-- ARGV   now | per delivery, 1 to 1,000: id, token, reason (its first 1,024 bytes are kept)
--        now | per message, 1 to 1,000: id, the word any in place of a token, reason
-- Reply  {header, {OK | GONE | LOST, ...}}; of an operator {header, {OK | MARKED | DEAD | GONE | MOVING | AWAY, ...}}
--        MARKED: it is leased. Unless it is acked or has a next message, it will be dead when its lease ends
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log n) a delivery; of an operator one scan of the ready list if one is ready
-- Again  LOST; of an operator harmless

--- use: partition
local by_operator = ARGV[3] == 'any'
if by_operator then
  --- use: fence
end
--- use: clock
--- use: open
--- use: before
--- use: finish
--- use: attrs
--- use: claim_marks
--- use: has_own_lease
--- use: release_from_claim
--- use: refusal_of
--- use: end_lease
--- use: life_of_deliveries
--- use: next
local count = (#ARGV - 1) / 3
local form = count >= 1 and count <= 1000 and count % 1 == 0
for i = 3, #ARGV, 3 do
  form = form and (ARGV[i] == 'any') == by_operator
end
if not form then
  return redis.error_reply(
    'BADARGS bury takes now, then id, token, reason for 1 to 1000 deliveries; or any in place of each token')
end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES); redis.call('ZCARD', DEAD)
local replies, changed, died = {}, 0, 0
local function die(id, failures, crashes, options, reason)
  set_attrs(id, failures, crashes, nil, options, string.sub(reason, 1, 1024))
  redis.call('ZADD', DEAD, now, id)
  died = died + 1
end
if by_operator then
  redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
  --- use: bury_any
else
  for i = 1, count do
    local id = ARGV[3 * i - 1]
    local refusal, claim = refusal_of(id, ARGV[3 * i])
    if refusal then
      replies[i] = refusal
    else
      local failures, crashes, _, options = attrs_of(id)
      if note then
        note(id, 'bury', nil, attempt_of(id, claim), ARGV[3 * i + 1])
      end
      end_lease(id, claim)
      if not start_next(id) then
        die(id, failures, crashes, options, ARGV[3 * i + 1])
      end
      replies[i], changed = 'OK', changed + 1
    end
  end
end
if died > 0 then
  redis.call('HINCRBY', META, 'died', died)
end
end_claims()
return {finish(changed > 0), replies}

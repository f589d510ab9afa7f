#!lua flags=allow-oom
-- throttle: gives messages back as release does, because their receiver wants a break, and closes the queue for it:
--           until the latest time that a delivery asks for. META's max_throttle_ms limits it (15 minutes). Ready
--           messages are scheduled again, so that the returned ones are first when the queue opens.
--           The other form closes the queue without a delivery: so a client closes the other partitions of a queue.
-- KEYS   the ten of the queue
-- ARGV   now | per delivery, 1 to 1,000: id, token, wait in ms, 1 to 3,155,760,000,000
--        now | close | wait in ms
-- Reply  {header, {OK <closed_until, ms> | GONE | LOST | INVALID <why>, ...}}; of close {header, OK <closed_until, ms>}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log n) a delivery and a ready message, of which there are 1,000 at most
-- Again  LOST; close counts again from now

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
local count, closes = (#ARGV - 1) / 3, #ARGV == 3 and ARGV[2] == 'close'
local function wait_of(text)
  local ms = #text <= 13 and string.find(text, '^%d+$') and tonumber(text)
  return ms and ms >= 1 and ms <= 3155760000000 and ms
end
if closes and not wait_of(ARGV[3]) or not closes and (count < 1 or count > 1000 or count % 1 ~= 0) then
  return redis.error_reply('BADARGS throttle takes now, then id, token, wait ms for 1 to 1000 deliveries; '
    .. 'or now, close, wait ms (1 to 3155760000000)')
end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES); redis.call('ZCARD', DEAD)
local most = tonumber(redis.call('HGET', META, 'max_throttle_ms') or '') or 900000
local replies, returned, latest = {}, 0, 0
for i = 1, closes and 0 or count do
  local id, wait_ms = ARGV[3 * i - 1], wait_of(ARGV[3 * i + 1])
  local refusal, claim, due = refusal_of(id, ARGV[3 * i])
  if not wait_ms then
    replies[i] = 'INVALID wait must be 1 to 3155760000000 ms'
  elseif refusal then
    replies[i] = refusal
  else
    local failures, crashes, _, options, reason = attrs_of(id)
    if note then
      note(id, 'throttle', nil, attempt_of(id, claim))
    end
    end_lease(id, claim)
    if not start_next(id) and not bury_marked(id, claim, failures, crashes, options, reason) then
      set_attrs(id, failures, crashes, nil, options, reason)
      redis.call('ZADD', SCHEDULED, math.min(due, now), id)
    end
    replies[i], returned, latest = true, returned + 1, math.max(latest, wait_ms)
  end
end
if returned > 0 and old_length > 1 then -- claims take ready messages first; when the queue opens, due order counts
  --- use: due_of_ready_timer
  local waiting = {}
  for _, entry in ipairs(redis.call('LRANGE', READY, 1, -1)) do
    local due, id = string.match(entry, '^(%d+):(.+)$')
    waiting[#waiting + 1] = due and string.byte(id) == 4 and due_of_ready_timer(id) or due
    waiting[#waiting + 1] = id
  end
  if #waiting > 0 then
    redis.call('ZADD', SCHEDULED, unpack(waiting))
  end
  redis.call('LTRIM', READY, 0, 0)
end
if closes then
  latest = layout and wait_of(ARGV[3]) or 0
end
local asked = latest > 0 and now_up + math.min(latest, most) or 0
--- use: close_until
if returned > buried then
  redis.call('HINCRBY', META, 'throttled', returned - buried)
end
if buried > 0 then
  redis.call('HINCRBY', META, 'died', buried)
end
for i = 1, #replies do
  replies[i] = replies[i] == true and 'OK ' .. int(opens) or replies[i]
end
end_claims()
return {finish(returned > 0 or longer), closes and 'OK ' .. int(opens) or replies}

#!lua flags=no-writes
-- get: returns one message, whatever its state.
-- KEYS   the ten of the queue
-- ARGV   now | id | at most so many bytes of the payload, or none: all
-- Reply  {header, {state, s, time_ms, t, failures, n, crashes, n, options, words, error, text, payload, bytes}};
--        {header, {}} if there is no such message; of an id that is remembered {header, {}, finished | expired |
--        cancelled, when it ended in ms, until when a window remembers it in ms or 0}
--        A leased message with a next one also has next_due, t; with a third argument also payload_bytes, n, the
--        length of the whole payload. Last of a leased one are lease, the name of its lease;
--        since, when the delivery began, ms, or 0; to_bury, 1 if it is to be dead when the lease ends, else 0.
--        Last of all life, if the queue keeps it: lines; behind until of one that ended
--        time_ms: the due of a scheduled or ready message, the lease deadline of a leased one, when a dead one died
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE; MOVING: it is on its way to another partition
-- Cost   O(log n); one scan of the ready list if it is ready
-- Again  harmless

--- use: fenced_prelude
--- use: state_of
--- use: ready_entry
--- use: attrs
--- use: claim_marks
--- use: has_own_lease
--- use: lease_member
--- use: lease_name
--- use: since
--- use: to_bury
--- use: next_mark
--- use: life_mark
local id, most = ARGV[2], tonumber(ARGV[3])
if #ARGV ~= 2 and not (#ARGV == 3 and most and #ARGV[3] <= 8 and string.find(ARGV[3], '^%d+$')) then
  return redis.error_reply('BADARGS get takes now, id, and perhaps at most how many bytes of the payload (0 to '
    .. '99999999)')
end
local state = state_of(id)
if state == 'absent' then
  --- use: away
  if away(id) == 'MOVING' then
    return redis.error_reply('MOVING this message is on its way to another partition: repeat the call')
  end
  --- use: recent_marks
  -- How and when a message ended whose id RECENT remembers.
  local names = {id, WINDOW_MARK .. id}
  for k = 0, 32 do
    names[k + 3] = OUTCOME_MARK .. string.char(64 + k) .. id
  end
  local scores = redis.call('ZMSCORE', RECENT, unpack(names))
  local cancelled, window, how, at = tonumber(scores[1] or 0), tonumber(scores[2] or 0), nil, 0
  for k = 0, 32 do -- 2^32 ms is longer than the longest window
    local score = tonumber(scores[k + 3] or 0)
    local ended = math.floor(score) - 2 ^ k
    if score > now and ended <= now and ended > at then -- the latest, if the id was used again
      how, at = score % 1 == DROPPED and 'expired' or 'finished', ended
    end
  end
  if cancelled > now and cancelled <= now_up + REPEAT_MS + 2 and cancelled % 1 == CANCELLED
    and math.floor(cancelled) - REPEAT_MS >= at then
    how, at = 'cancelled', math.floor(cancelled) - REPEAT_MS
  end
  -- The last event of a life that is kept after the end says it too.
  local life = (layout or '') > '4' and redis.call('HGET', ATTRS, LIFE_MARK .. id)
  if life and not how then
    local ms, word = string.match('\n' .. life, '.*\n(%d+) (%l+)')
    how, at = ({expired = 'expired', cancel = 'cancelled', purge = 'cancelled'})[word] or 'finished', tonumber(ms or 0)
  end
  if not how then return {finish(false, true), {}} end
  window = window > now and window <= now_up + 2592000000 and window or 0
  return {finish(false, true), {}, how, at, window, life or nil}
end
local time
if state == 'ready' then
  time = string.match(ready_entry(id) or '0:', '^%d+')
elseif state == 'leased' then
  time = redis.call('ZSCORE', LEASES, lease_member(id, redis.call('HGET', CLAIMS, id)))
else
  time = redis.call('ZSCORE', state == 'scheduled' and SCHEDULED or DEAD, id)
end
local failures, crashes, _, options, reason = attrs_of(id)
local payload = redis.call('HGET', MESSAGES, id) or ''
local told = {'state', state, 'time_ms', tonumber(time or 0), 'failures', failures, 'crashes', crashes,
  'options', options, 'error', reason, 'payload', most and string.sub(payload, 1, most) or payload}
local following = state == 'leased' and (layout or '') >= '3' and redis.call('HGET', ATTRS, NEXT_MARK .. id)
if following then
  told[#told + 1], told[#told + 2] = 'next_due', tonumber(string.match(following, '^%d+'))
end
if most then
  told[#told + 1], told[#told + 2] = 'payload_bytes', #payload
end
if state == 'leased' then
  local claim = redis.call('HGET', CLAIMS, id)
  told[#told + 1], told[#told + 2] = 'lease', lease_name(claim)
  told[#told + 1], told[#told + 2] = 'since', has_own_lease(claim)
    and tonumber(redis.call('HGET', CLAIMS, SINCE_MARK .. id) or 0)
    or begun(redis.call('HGET', CLAIMS, lease_member(id, claim)), time or 0)
  told[#told + 1], told[#told + 2] = 'to_bury', to_bury(claim) and 1 or 0
end
local life = (layout or '') > '4' and redis.call('HGET', ATTRS, LIFE_MARK .. id)
if life then
  told[#told + 1], told[#told + 2] = 'life', life
end
return {finish(false, true), told}

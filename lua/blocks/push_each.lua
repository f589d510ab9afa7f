--- use: read_options
local function live(score)
  score = tonumber(score)
  return score and score > now and score <= now_up + REPEAT_MS + 1 and score
end
local function finished(i) -- FINISHED, if this call is a repetition and the message ended since its first try
  local repeated = call_mark and (call_mark % 1 == 0 or redis.call('ZSCORE', RECENT, call .. ' ' .. ids[i]))
  if repeated then return 'FINISHED' end
  local last = until_ms and ended and ended[i] and live(ended[i])
  -- Until is the first try + 10,000 ms, with a fraction. Half a microsecond allows for the rounding of scores.
  local first = until_ms and (tonumber(string.match(attempt, '^[%d.]+')) or until_ms) - 10000 + 0.0005
  return last and last - REPEAT_MS > first and 'FINISHED ' .. string.format('%.3f', last - REPEAT_MS)
end
local burst -- of the queue's rate, if a message has a cost
local function invalid(id, due, payload, asked, why)
  if #id < 1 or #id > 200 or not plain and string.find(id, '%c') then
    return 'INVALID id must be 1 to 200 bytes, none of them a control byte'
  elseif not due then
    return 'INVALID due must be unix ms, or + and a delay in ms, at most 100 years ahead'
  elseif #payload > max_payload then
    return 'INVALID payload has ' .. #payload .. ' bytes, the limit of this queue is ' .. int(max_payload)
  elseif not asked then
    return 'INVALID ' .. why
  elseif move and asked.on_conflict == 'keep' then
    return 'INVALID upsert takes on_conflict=reschedule or on_conflict=replace: use push to keep a message'
  elseif not move and asked.on_conflict ~= 'keep' then
    return 'INVALID push takes no on_conflict=' .. asked.on_conflict .. ': use upsert'
  elseif asked.cost then
    burst = burst or tonumber(string.match(redis.call('HGET', META, 'rate') or '', '(%d+)$') or 1000000)
    local refusal = 'INVALID cost must be 1 to ' .. int(burst) .. ', the burst of the rate'
    if tonumber(asked.cost) > burst then return refusal end
  end
end
-- Not part of `invalid`: a repetition of a call that created the message comes later, and must not be refused.
local function expired_already(due, asked)
  local absolute = asked.expires and string.byte(asked.expires) ~= 43 and asked.expires_ms
  if absolute and (absolute <= now_up or absolute < due) then
    return 'INVALID expires must be ahead, and not before the due time'
  end
end
local no_options, asked, why, asked_words = {on_conflict = 'keep', stored = ''}, nil, nil, nil
local function one(i)
  local id, text, payload, words = ids[i], ARGV[4 * i], ARGV[4 * i + 1], ARGV[4 * i + 2]
  local due = due_of[text]
  if due == nil then
    due = due_ms(text) or false
    due_of[text], due_text[text] = due, due and (string.byte(text) == 43 and int(due) or text)
  end
  if words == '' then
    asked = no_options
  elseif words ~= asked_words then -- neighbours often share their options
    asked, why = read_options(words)
  end
  asked_words = words
  local refusal = invalid(id, due, payload, asked, why) or too_late and 'EXPIRED'
  if refusal then return refusal end
  if found[i] or taken[id] then
    local state = taken[id] and 'scheduled' or state_of(id)
    if not move or state == 'leased' or state == 'dead' then
      noted[#noted + 1] = id
      return 'EXISTS ' .. state
    end
    local late = asked.on_conflict == 'replace' and expired_already(due, asked)
    if late then return late end
    move(id, state, due, payload, asked.on_conflict == 'replace' and asked.stored)
    d, dues[d + 1], dues[d + 2], taken[id] = d + 2, due_text[text], id, true
    return 'MOVED'
  end
  local earlier = finished(i)
  local late = earlier or expired_already(due, asked)
  if late then return late end
  if created >= room then return 'FULL this queue may hold ' .. max_messages .. ' messages' end
  if ended and ended[i] then -- a repeated cancel of this id must not take the new message
    local cancelled = tonumber(redis.call('ZSCORE', RECENT, id) or 0)
    if cancelled > now and cancelled % 1 == CANCELLED then
      remember(string.format('%.2f', math.floor(cancelled) + PUSHED_AGAIN), id)
    end
  end
  p, payloads[p + 1], payloads[p + 2] = p + 2, id, payload
  d, dues[d + 1], dues[d + 2] = d + 2, due_text[text], id
  created, taken[id], options[id] = created + 1, true, asked.stored ~= '' and asked.stored or nil
  longest = math.max(longest, #payload)
  if due - now <= REPEAT_MS then
    noted[#noted + 1] = id
  end
  return 'CREATED'
end
for i = 1, count do
  replies[i] = one(i)
  call_mark_suffices = call_mark_suffices and (replies[i] == 'CREATED' or string.find(replies[i], '^EXISTS') ~= nil)
end
remember_call = call_mark_suffices and #noted > 0
if until_ms and not call_mark_suffices and #noted > 0 and (not call_mark or call_mark % 1 > 0) then
  for _, id in ipairs(noted) do
    remember(until_text, call .. ' ' .. id)
  end
  remember(string.format('%.2f', until_ms + PARTLY), call)
end
changed = d > 0
if changed then
  if create_queue then
    create_queue()
  end
  if p > 0 then
    redis.call('HSET', MESSAGES, unpack(payloads))
  end
  redis.call('ZADD', SCHEDULED, unpack(dues))
end
local stored, plain_ids, expires = {}, {}, false
for id, words in pairs(options) do
  if words == '' then
    plain_ids[#plain_ids + 1] = id
  else
    stored[#stored + 1], stored[#stored + 2] = id, '0 0 - ' .. words .. '\n'
    expires = expires or string.find(words, 'expires=', 1, true)
  end
end
if #stored > 0 then
  redis.call('HSET', ATTRS, unpack(stored))
end
if #plain_ids > 0 then -- of replacements
  redis.call('HDEL', ATTRS, unpack(plain_ids))
end
if expires then -- claim looks for messages that have expired
  redis.call('HSET', META, 'expiring', '1', 'selective', '1')
end

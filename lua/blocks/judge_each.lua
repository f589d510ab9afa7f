--- use: read_options
local function live(score)
  score = tonumber(score)
  return score and score > now and score <= now_up + REPEAT_MS + 1 and score
end
local function applied(i) -- whether RECENT holds that an earlier try of this call was applied to message i
  return call_mark and (call_mark % 1 == 0 or redis.call('ZSCORE', RECENT, call .. ' ' .. ids[i]))
end
local function finished(i) -- FINISHED, if this call is a repetition and the message ended since its first try
  if applied(i) then return 'FINISHED' end
  local last = until_ms and ended and ended[i] and live(ended[i])
  if not last then return nil end
  -- Until is the first try + 10,000 ms, with a fraction. Half a microsecond allows for the rounding of scores.
  local first = (tonumber(string.match(attempt, '^[%d.]+')) or until_ms) - 10000 + 0.0005
  return last - REPEAT_MS > first and 'FINISHED ' .. string.format('%.3f', last - REPEAT_MS)
end
local function remembered(i) -- until when a window remembers the id of message i
  local score = tonumber(windows and windows[i] or 0)
  return score > now and score <= now_up + 2592000000 and score
end
local remembers, max_remembered, window_end = nil, nil, 0 -- if a message has a window
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
  elseif asked.max_wait and due > now_up + asked.max_wait then
    return 'INVALID max_wait must be at least the delay'
  elseif asked.on_conflict == 'next' and (layout or '') < '3' then
    return 'INVALID on_conflict=next needs layout 3: once all nodes know it, run dueq configure ' .. queue
      .. ' --layout 3'
  elseif asked.cost then
    burst = burst or tonumber(string.match(redis.call('HGET', META, 'rate') or '', '(%d+)$') or 1000000)
    if tonumber(asked.cost) > burst then
      return 'INVALID cost must be 1 to ' .. int(burst) .. ', the burst of the rate'
    end
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
    local follows = move and asked.on_conflict == 'next'
    if follows and applied(i) then -- a repetition changes nothing: another call may have replaced the message since
      return state == 'leased' and 'NEXT' or state == 'dead' and 'EXISTS dead' or 'MOVED'
    elseif follows and state == 'dead' and not asked.revive then
      call_mark_suffices = false -- a repetition may still be applied, after a requeue
      return 'EXISTS dead'
    end
    if not move or state == 'leased' and not follows or state == 'dead' and (not asked.revive or finished(i)) then
      noted[#noted + 1] = id
      return 'EXISTS ' .. state
    end
    local late = asked.on_conflict ~= 'reschedule' and expired_already(due, asked)
    if late then return late end
    if follows then
      noted[#noted + 1] = id
    end
    if state == 'leased' then
      follow(id, due, payload, asked.stored)
      return 'NEXT'
    end
    d, dues[d + 1], dues[d + 2], taken[id] = d + 2, move(id, state, due, payload, asked), id, true
    return 'MOVED'
  end
  local earlier = finished(i)
  if asked.undo and not earlier then -- of the cancel at that time, and nothing happened to the id since
    local cancelled = tonumber(redis.call('ZMSCORE', RECENT, id)[1] or 0)
    earlier = (cancelled <= now or cancelled ~= asked.undo + REPEAT_MS + CANCELLED) and 'USED'
  end
  if earlier then return earlier end
  if not asked.reuse and remembered(i) then return 'REMEMBERED ' .. int(remembered(i)) end
  local late = expired_already(due, asked)
  if late then return late end
  if created >= room then return 'FULL this queue may hold ' .. max_messages .. ' messages' end
  if asked.window then
    remembers = remembers or redis.call('ZCOUNT', RECENT, '(' .. now, '(inf')
    max_remembered = max_remembered or tonumber(redis.call('HGET', META, 'max_remembered') or '') or 1000000
    if remembers >= max_remembered then return 'FULL this queue may remember ' .. int(max_remembered) .. ' ids' end
    remembers, window_end = remembers + 1, math.max(window_end, now_up + asked.window)
    remember(int(now_up + asked.window), WINDOW_MARK .. id)
  end
  if ended and ended[i] then -- a repeated cancel of this id must not take the new message
    local cancelled = tonumber(redis.call('ZMSCORE', RECENT, id)[1] or 0)
    if cancelled > now and cancelled % 1 == CANCELLED then
      remember(string.format('%.2f', math.floor(cancelled) + PUSHED_AGAIN), id)
    end
  end
  p, payloads[p + 1], payloads[p + 2] = p + 2, id, payload
  d, dues[d + 1], dues[d + 2] = d + 2, due_text[text], id
  created, taken[id], options[id] = created + 1, true, asked.stored ~= '' and asked.stored or nil
  longest = math.max(longest, #payload)
  if due - now <= REPEAT_MS or asked.on_conflict == 'next' then
    noted[#noted + 1] = id
  end
  return 'CREATED'
end
for i = 1, count do
  replies[i] = one(i)
  call_mark_suffices = call_mark_suffices and (replies[i] == 'CREATED' or string.find(replies[i], '^EXISTS') ~= nil)
end

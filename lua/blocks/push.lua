-- What push, upsert and ack_push share, and what they read of a message.

--- block: due_ms
local function due_ms(text) -- '<unix ms>' or '+<delay ms>' as unix ms; nil for other text and beyond 100 years
  local ahead = string.byte(text) == 43
  if #text > (ahead and 16 or 15) or not string.find(text, '^%+?%d+$') then return nil end
  local due = tonumber(text) + (ahead and now_up or 0)
  return due <= now_up + 3155760000000 and due or nil
end

--- block: read_options
-- The options of a message: words NAME=VALUE.
local ranges = {max_attempts = 1000000, cost = 1000000, window = 2592000000, max_wait = 3155760000000,
  undo = 9999999999999}
local option_forms = 'one of max_attempts=1..1000000, on_conflict=keep|reschedule|replace|next, '
  .. 'traceparent=00-TRACE-SPAN-FLAGS, expires=MS|+MS, on_expire=dead|drop, cost=1..1000000, window=1..2592000000 ms, '
  .. 'max_wait=1..3155760000000 ms, reuse, revive, undo=MS'
local function read_options(text) -- the values by name; or nil and the reason
  local asked = {on_conflict = 'keep'}
  for word in string.gmatch(text, '[^ ]+') do
    local name, value = string.match(word, '^([%l_]+)=(.+)$')
    if word == 'reuse' or word == 'revive' then
      asked[word] = true
    elseif ranges[name or ''] then
      local number = string.find(value, '^%d+$') and tonumber(value)
      if not number or number < 1 or number > ranges[name] then
        return nil, name .. ' must be 1 to ' .. int(ranges[name])
      end
      asked[name] = int(number)
    elseif name == 'on_conflict' and (value == 'keep' or value == 'reschedule' or value == 'replace'
      or value == 'next') then
      asked.on_conflict = value
    elseif name == 'expires' then
      asked.expires, asked.expires_ms = value, due_ms(value)
      if not asked.expires_ms or string.find(value, '^%+0*$') then
        return nil, 'expires must be + and 1 to 3155760000000 ms after the due time, or unix ms that have not passed'
      end
    elseif name == 'on_expire' and (value == 'drop' or value == 'dead') then
      asked.on_expire = value
    elseif name == 'traceparent' then
      local trace, span = string.match(value, '^00%-([0-9a-f]+)%-([0-9a-f]+)%-[0-9a-f][0-9a-f]$')
      if not trace or #trace ~= 32 or #span ~= 16 or not string.find(trace, '[^0]')
        or not string.find(span, '[^0]') then
        return nil, 'option: ' .. option_forms
      end
      asked.traceparent = value
    else
      return nil, 'option: ' .. option_forms
    end
  end
  if asked.on_expire and not asked.expires then return nil, 'on_expire needs expires' end
  if asked.max_wait and asked.on_conflict == 'keep' then
    return nil, 'max_wait needs on_conflict=reschedule, replace or next'
  end
  if asked.revive and asked.on_conflict ~= 'replace' and asked.on_conflict ~= 'next' then
    return nil, 'revive needs on_conflict=replace or next'
  end
  asked.due_by = asked.max_wait and int(now_up + asked.max_wait)
  local words = {} -- as ATTRS keeps them, in one order
  for _, name in ipairs({'max_attempts', 'traceparent', 'expires', 'on_expire', 'cost', 'window', 'due_by'}) do
    words[#words + 1] = asked[name] and name .. '=' .. asked[name]
  end
  asked.stored = table.concat(words, ' ')
  return asked
end

--- block: push_request
-- The request of push and upsert, and what both read before they judge it.
--   flight, away         see that block
--   count, ids           how many messages; their ids
--   attempt              the verb sets it before; until_text and until_ms: its first part
--   room, max_payload    limits of the queue; room: how many messages more it may hold
--   largest              META's largest_payload_bytes, at least 4,096
--   found[i]             true or the payload if message i is in the queue; else false
--   plain                true if no id has a control byte; false: look at each
--   ended[i], call_mark  what RECENT holds of id i and of this call, if it may matter
--   too_late             true if the attempt is past its until, or claims one too far ahead
--- use: away
local count = (#ARGV - 2) / 4
-- string.sub and string.byte, for a pattern costs as much as a command.
local until_text, dot = string.sub(attempt, 1, 13), string.byte(attempt, 14)
local until_ms, blank = tonumber(until_text), dot == 32 and 14 or dot == 46 and string.byte(attempt, 18) == 32 and 18
if count < 1 or count > 1000 or count % 1 ~= 0 or attempt ~= '' and not (until_ms and blank
  and #attempt - blank >= 8 and #attempt - blank <= 64
  and string.byte(until_text) > 48 and string.byte(until_text, 13) > 47) then
  return redis.error_reply('BADARGS push and upsert take now, attempt (until, 13 digits of ms and perhaps a dot and '
    .. '3 digits, a blank and a nonce of 8 to 64 bytes; or empty), then id, due, payload, options for 1 to 1000 '
    .. 'messages')
end
local max_messages, max_payload, ended_until, windows_until =
  unpack(redis.call('HMGET', META, 'max_messages', 'max_payload_bytes', 'ended_until', 'windows_until'))
local room = max_messages and tonumber(max_messages) + 1 - redis.call('HLEN', MESSAGES) or math.huge
if max_messages and layout and layout > '3' then -- timers of schedules take no places
  room = room + (tonumber(redis.call('HGET', META, 'schedules') or '') or 0)
end
max_payload = tonumber(max_payload or 1048576)
local largest = 4096
if count > 1 or #ARGV[5] > 4096 then
  local stored = redis.call('HGET', META, 'largest_payload_bytes')
  if stored then
    largest = string.find(stored, '^%d+$') and tonumber(stored) or 16777216 -- unreadable: assume the most
  end
end
local ARGV, ids, id_bytes = ARGV, {}, 0 -- Lua reads a local faster than a global
for i = 1, count do
  ids[i], id_bytes = ARGV[4 * i - 1], id_bytes + #ARGV[4 * i - 1]
end
local found
if largest > 4096 or count == 1 then -- HMGET would read payloads, which may be long
  found = {}
  for i = 1, count do
    found[i] = redis.call('HEXISTS', MESSAGES, ids[i]) == 1
  end
else
  found = redis.call('HMGET', MESSAGES, unpack(ids))
end
-- JSON writes control bytes longer, and some others: one call in C replaces a pattern for each id.
local plain = count > 1 and #cjson.encode(ids) == id_bytes + 3 * count + 1
local ended, call_mark, call = nil, nil, CALL_MARK .. attempt
if until_ms then
  call_mark = redis.call('ZSCORE', RECENT, call)
else
  redis.call('ZCARD', RECENT)
end
call_mark = call_mark and tonumber(call_mark) > now and tonumber(call_mark) or nil
if ended_until and (not string.find(ended_until, '^%d+$') or tonumber(ended_until) > now) then
  local names = {}
  for i = 1, count do
    names[i] = ENDED_MARK .. ids[i]
  end
  ended = redis.call('ZMSCORE', RECENT, unpack(names))
end
local windows = nil -- by message: when the window of its id ends, or nil
if windows_until and (not string.find(windows_until, '^%d+$') or tonumber(windows_until) > now) then
  local names = {}
  for i = 1, count do
    names[i] = WINDOW_MARK .. ids[i]
  end
  windows = redis.call('ZMSCORE', RECENT, unpack(names))
end
local too_late = until_ms and (until_ms <= now or until_ms > now + REPEAT_MS)
-- Results of the call:
--   replies, created     item results; how many messages are new
--   longest              the longest payload stored, or `largest`
--   payloads, dues       id, payload, ... for MESSAGES; score, id, ... for SCHEDULED
--   memory               score, name, ... for RECENT
--   remember_call        whether RECENT must remember the call as a whole
--   changed, head, length  for finish
local replies, created, longest, payloads, dues, memory, remember_call, changed, head, length

--- block: push_reads
-- Keys of states that a new message cannot have. A call that judges messages one by one may write them.
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('ZCARD', DEAD)

--- block: read_shared
-- Reads the options that all messages share. Those that need a look at each message, or too many windows, leave the
-- fast path.
shared = read(words)
all_new = shared and shared.on_conflict == 'keep' and not shared.undo and not shared.cost
  and string.byte(shared.expires or '+') == 43
if all_new and shared.window then
  local remembers = redis.call('ZCOUNT', RECENT, '(' .. now, '(inf')
  local most = tonumber(redis.call('HGET', META, 'max_remembered') or '') or 1000000
  all_new = remembers + count <= most
end

--- block: store_shared
-- Of new messages that have the same options.
local expires, window_end = shared.expires, shared.window and now_up + shared.window or 0
if shared.stored ~= '' then
  local attrs, stored = {unpack(payloads)}, '0 0 - ' .. shared.stored .. '\n'
  for i = 2, 2 * count, 2 do
    attrs[i] = stored
  end
  redis.call('HSET', ATTRS, unpack(attrs))
end
if shared.window then
  memory = {unpack(payloads)}
  local ends = int(window_end)
  for i = 1, count do
    memory[2 * i - 1], memory[2 * i] = ends, WINDOW_MARK .. ids[i]
  end
end
--- use: note_options

--- block: push_state
--- use: push_reads
--- use: attrs
--- use: life
-- The messages are judged one by one; each sees what the earlier ones did.
--   due_of, due_text   by the text of a due: its ms, or false; its score
--   taken              by id: this call stored or moved it
--   p, d               how many elements payloads and dues have
--   options            by id: words to store in ATTRS
--   noted              ids by which a repetition of this call is recognised
--   call_mark_suffices  whether remembering the call says the same as remembering each of `noted`
local due_of, due_text, taken, options, p, d = {}, {}, {}, {}, 0, 0
local noted, call_mark_suffices = {}, not call_mark
replies, payloads, dues, memory, created, longest = {}, {}, {}, {}, 0, largest
head, length = nil, nil
local function remember(score, name)
  memory[#memory + 1] = score
  memory[#memory + 1] = name
end

--- block: judge_each
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
local function forget_cancel(i) -- a repeated cancel of this id must not take the new message
  if not (ended and ended[i]) then return end
  local cancelled = tonumber(redis.call('ZMSCORE', RECENT, ids[i])[1] or 0)
  if cancelled > now and cancelled % 1 == CANCELLED then
    remember(string.format('%.2f', math.floor(cancelled) + PUSHED_AGAIN), ids[i])
  end
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
  if not (earlier or asked.reuse) and remembered(i) then
    earlier = 'REMEMBERED ' .. int(remembered(i))
  end
  if flight or probes then
    earlier = away(id, earlier)
    earlier = earlier ~= 'ABSENT' and earlier
  end
  if earlier == 'AWAY' then -- the caller pushes elsewhere: a cancel from before is not the last word any more
    forget_cancel(i)
  end
  if earlier then return earlier end
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
  forget_cancel(i)
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

--- block: store_each
changed = d > 0
if changed then
  if create_queue then
    create_queue()
  end
  if #payloads > 0 then
    redis.call('HSET', MESSAGES, unpack(payloads))
  end
  redis.call('ZADD', SCHEDULED, unpack(dues))
end
local stored, plain_ids, expires, last_words, text, s = {}, {}, false, nil, nil, 0
for id, words in pairs(options) do
  if words == '' then
    plain_ids[#plain_ids + 1] = id
  else
    if words ~= last_words then
      last_words, text, expires = words, '0 0 - ' .. words .. '\n', expires or string.find(words, 'expires=', 1, true)
    end
    s, stored[s + 1], stored[s + 2] = s + 2, id, text
  end
end
if #stored > 0 then
  redis.call('HSET', ATTRS, unpack(stored))
end
if #plain_ids > 0 then -- of replacements
  redis.call('HDEL', ATTRS, unpack(plain_ids))
end
if note then -- dues has those that were created or moved, in the order of the call
  local k = 0
  for i, id in ipairs(ids) do
    if dues[k + 2] == id and (replies[i] == 'CREATED' or replies[i] == 'MOVED') then
      local undoes = string.find(ARGV[4 * i + 2], 'undo=', 1, true)
      note(id, undoes and 'undo' or verb, dues[k + 1], nil, nil, replies[i] == 'CREATED' and not undoes)
      k = k + 2
    end
  end
end
--- use: note_options

--- block: lives_of_pushes
-- The first events of new messages, before anything is written.
redis.call('HLEN', ATTRS)
if redis.call('HGET', META, 'life_keep_ms') then
  --- use: life_mark
  local begins, last, life = int(now) .. ' push ', nil, nil
  lives = {unpack(dues)}
  for i = 1, 2 * count, 2 do
    if dues[i] ~= last then
      last, life = dues[i], begins .. dues[i]
    end
    lives[i], lives[i + 1] = LIFE_MARK .. dues[i + 1], life
  end
end

--- block: note_options
if expires then -- claim looks for messages that have expired
  redis.call('HSET', META, 'expiring', '1', 'selective', '1')
end
if window_end > (tonumber(windows_until or '') or 0) then
  redis.call('HSET', META, 'windows_until', int(window_end))
end

--- block: push_each
--- use: judge_each
remember_call = call_mark_suffices and #noted > 0
if until_ms and not call_mark_suffices and #noted > 0 and (not call_mark or call_mark % 1 > 0) then
  for _, id in ipairs(noted) do
    remember(until_text, call .. ' ' .. id)
  end
  remember(string.format('%.2f', until_ms + PARTLY), call)
end
--- use: store_each

--- block: push_end
memory = memory or {}
if remember_call and until_ms then
  memory[#memory + 1], memory[#memory + 2] = until_text, call
end
if #memory > 0 then
  --- use: trim_recent
  redis.call('ZADD', RECENT, unpack(memory))
  trim_recent(#memory)
end
--- use: grow_largest
if created > 0 then
  redis.call('HINCRBY', META, 'pushed', created)
end

--- block: grow_largest
if longest > largest then -- of all payloads that were ever stored, as a power of two: claim plans its reads by it
  local bytes = 4096
  while bytes < longest do
    bytes = 2 * bytes
  end
  redis.call('HINCRBY', META, 'largest_payload_bytes', int(bytes - (largest > 4096 and largest or 0)))
end

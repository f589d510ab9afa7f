#!lua
-- push: absent -> scheduled, for 1 to 1,000 messages.
-- KEYS   the ten of the queue
-- ARGV   now | attempt: '<until> <nonce>', or empty | per message: id, due, payload, options
--        until: server ms of the first attempt + 10,000, 13 digits and perhaps a fraction; a repetition at or after it is refused
--        nonce: 8 to 64 bytes, made at random for each call; a repetition sends the same until and nonce
--        due: unix ms, or +ms from now. options: words of max_attempts=N, on_conflict=keep|reschedule|replace, traceparent=00-...
-- Reply  {header, {CREATED | EXISTS <state> | MOVED | FINISHED | FINISHED <ms> | EXPIRED | FULL <why> | INVALID <why>, ...}}; one CREATED alone if all are
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, OOM: nothing was written
-- Cost   O(log n) a message, and one scan of the ready window if a conflict moves a ready message
-- Again  with the same attempt: EXISTS or FINISHED, EXPIRED from until on. With reschedule or replace it moves again

--- use: prelude
-- A function costs as much as a command when it is made: what most calls do without is made where it is needed.
local make -- may be called twice: what it has made it does not make again
if not layout then
--- use: create
make = create
end
--- use: due_ms
local count, attempt = (#ARGV - 2) / 4, ARGV[2] or ''
local limit, dot = string.sub(attempt, 1, 13), string.byte(attempt, 14) -- a pattern costs as much as a command
local until_ms, blank = tonumber(limit), dot == 32 and 14 or dot == 46 and string.byte(attempt, 18) == 32 and 18
if count < 1 or count > 1000 or count % 1 ~= 0 or attempt ~= '' and not (until_ms and blank and #attempt - blank >= 8 and #attempt - blank <= 64
  and string.byte(limit) > 48 and string.byte(limit, 13) > 47) then
  return redis.error_reply('BADARGS push takes now, attempt (until, 13 digits of ms and perhaps a dot and 3 digits, a blank and a nonce of 8 to 64 bytes; or empty), then id, due, payload, options for 1 to 1000 messages')
end
local max_messages, max_payload, any_ended = unpack(redis.call('HMGET', META, 'max_messages', 'max_payload_bytes', 'ended_until'))
local room = max_messages and tonumber(max_messages) + 1 - redis.call('HLEN', MESSAGES) or math.huge
max_payload = tonumber(max_payload or 1048576)
local largest = 4096
if count > 1 or #ARGV[5] > 4096 then
  local stored = redis.call('HGET', META, 'largest_payload_bytes') -- what is no number is as good as the most that there may be
  if stored then largest = string.find(stored, '^%d+$') and tonumber(stored) or 16777216 end
end
local ARGV, ids, bytes = ARGV, {}, 0 -- a local is found faster than a global
for i = 1, count do
  ids[i], bytes = ARGV[4 * i - 1], bytes + #ARGV[4 * i - 1]
end
local found
if largest > 4096 or count == 1 then -- a payload may be long: ask for each id alone, which reads none
  found = {}
  for i = 1, count do found[i] = redis.call('HEXISTS', MESSAGES, ids[i]) == 1 end
else found = redis.call('HMGET', MESSAGES, unpack(ids)) end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('ZCARD', DEAD)
-- JSON writes control bytes longer, and some others: one look in C spares a pattern for each id.
local plain = count > 1 and #cjson.encode(ids) == bytes + 3 * count + 1
-- RECENT holds, under byte 3 and the attempt, that this call was made before: all its messages, or (.5) some, each under its
-- own name. Under byte 4 and an id, when that message ended or moved near its due, plus REPEAT_MS; META, the latest of those.
local ended, mark, call = nil, nil, '\3' .. attempt
if until_ms then mark = redis.call('ZSCORE', RECENT, call) else redis.call('ZCARD', RECENT) end
mark = mark and tonumber(mark) > now and tonumber(mark) or nil
if any_ended and (not string.find(any_ended, '^%d+$') or tonumber(any_ended) > now) then
  local names = {}
  for i = 1, count do names[i] = '\4' .. ids[i] end
  ended = redis.call('ZMSCORE', RECENT, unpack(names))
end
local too_late = until_ms and (until_ms <= now or until_ms > now + REPEAT_MS)
-- Fast path: every id is new and no message has options. ZADD NX tells whether an id comes twice; then, and if anything else is
-- not that simple, the messages are judged one by one.
local all_new, replies, created, head, length = not mark and not too_late and count <= room, {'CREATED'}, count, old_head, not make and old_length or nil
local near, longest, memory, moved_near, payloads, dues, text, score = false, largest, nil, false
if all_new then
  if count == 1 then payloads, dues = {0, 0}, {0, 0} -- to be overwritten: of their size at once
  else payloads, dues = {unpack(ARGV, 1, 2 * count)}, {unpack(ARGV, 1, 2 * count)} end
  for i = 1, count do
    local at, j, id = 4 * i, 2 * i, ids[i]
    local payload = ARGV[at + 1]
    if ARGV[at] ~= text then
      local due = due_ms(ARGV[at])
      text, score = ARGV[at], due and (string.byte(ARGV[at]) == 43 and int(due) or ARGV[at])
      head, near = math.min(head, due or head), near or due and due - now <= REPEAT_MS
    end
    if #payload > longest then longest = #payload end
    if not score or found[i] or ended and ended[i] or ARGV[at + 2] ~= '' or #id < 1 or #id > 200 or #payload > max_payload
      or not plain and string.find(id, '%c') then all_new = false break end
    payloads[j - 1], payloads[j], dues[j - 1], dues[j] = id, payload, score, id
  end
end
if all_new then
  if make then make() end
  redis.call('HSET', MESSAGES, unpack(payloads)) -- first, as a consumer may not
  all_new = redis.call('ZADD', SCHEDULED, 'NX', unpack(dues)) == count
end
local changed = all_new
if not all_new then
--- use: state_of
--- use: ready_entry
--- use: remove_ready
--- use: attrs
local function read_options(text) -- words into on_conflict and what is stored; nothing if one is unknown
  local on_conflict, limit, parent = 'keep', '', ''
  for word in string.gmatch(text, '[^ ]+') do
    local conflict, attempts = string.match(word, '^on_conflict=(%l+)$'), string.match(word, '^max_attempts=(%d+)$')
    local trace, span = string.match(word, '^traceparent=00%-([0-9a-f]+)%-([0-9a-f]+)%-[0-9a-f][0-9a-f]$')
    if conflict == 'keep' or conflict == 'reschedule' or conflict == 'replace' then on_conflict = conflict
    elseif attempts and tonumber(attempts) >= 1 and tonumber(attempts) <= 1000000 then limit = 'max_attempts=' .. int(tonumber(attempts))
    elseif trace and #trace == 32 and #span == 16 and string.find(trace, '[^0]') and string.find(span, '[^0]') then parent = word
    else return nil end
  end
  return on_conflict, limit .. (limit ~= '' and parent ~= '' and ' ' or '') .. parent
end
local due_of, due_text, moved, options, taken, p, d = {}, {}, {}, {}, {}, 0, 0 -- how much is in payloads and dues
local noted, whole = {}, not mark -- the messages by which a repetition must be recognised; whether they are all
replies, payloads, dues, created, longest = {}, {}, {}, 0, largest
memory = {}
local function live(score) score = tonumber(score); return score and score > now and score <= now_up + REPEAT_MS + 1 and score end
local function remember(score, name) memory[#memory + 1] = score; memory[#memory + 1] = name end
local function known(i) -- FINISHED, if this is a repetition and the message has gone since its first attempt
  if mark and (mark % 1 == 0 or redis.call('ZSCORE', RECENT, call .. ' ' .. ids[i])) then return 'FINISHED' end
  local last = until_ms and ended and ended[i] and live(ended[i])
  -- Until is the first attempt + 10,000, with a fraction. Half a microsecond: scores are rounded.
  return last and last - REPEAT_MS > (tonumber(string.match(attempt, '^[%d.]+')) or until_ms) - 10000 + 0.0005 and 'FINISHED ' .. string.format('%.3f', last - REPEAT_MS)
end
local function one(i)
  local id, text, payload, words = ids[i], ARGV[4 * i], ARGV[4 * i + 1], ARGV[4 * i + 2]
  local due, on_conflict, stored = due_of[text], 'keep', ''
  if due == nil then
    due = due_ms(text) or false
    due_of[text], due_text[text] = due, due and (string.byte(text) == 43 and int(due) or text)
  end
  if words ~= '' then on_conflict, stored = read_options(words) end
  if #id < 1 or #id > 200 or not plain and string.find(id, '%c') then return 'INVALID id must be 1 to 200 bytes, none of them a control byte' end
  if not due then return 'INVALID due must be unix ms, or + and a delay in ms, at most 100 years ahead' end
  if #payload > max_payload then return 'INVALID payload has ' .. #payload .. ' bytes, the limit of this queue is ' .. int(max_payload) end
  if not on_conflict then return 'INVALID option: one of max_attempts=1..1000000, on_conflict=keep|reschedule|replace, traceparent=00-TRACE-SPAN-FLAGS' end
  if too_late then return 'EXPIRED' end
  local soon = due - now <= REPEAT_MS
  if found[i] or taken[id] then
    local state = taken[id] and 'scheduled' or state_of(id)
    if on_conflict == 'keep' or state == 'leased' or state == 'dead' then
      noted[#noted + 1] = id
      return 'EXISTS ' .. state
    end
    if state == 'ready' then moved[ready_entry(id) or ''] = true end
    if on_conflict == 'replace' then
      payloads[p + 1], payloads[p + 2], p, options[id] = id, payload, p + 2, stored
      longest = math.max(longest, #payload)
    else options[id] = options[id] or false end
    if soon then remember(string.format('%.3f', now_us / 1000 + REPEAT_MS), '\4' .. id) end
    moved_near = moved_near or soon
    dues[d + 1], dues[d + 2], d, taken[id] = due_text[text], id, d + 2, true
    return 'MOVED'
  end
  local finished = known(i)
  if finished then return finished end
  if created >= room then return 'FULL this queue may hold ' .. max_messages .. ' messages' end
  if ended and ended[i] then -- its id is no cancelled one any more, but for a repetition of that cancel
    local cancelled = tonumber(redis.call('ZSCORE', RECENT, id) or 0)
    if cancelled > now and cancelled % 1 == 0.5 then remember(int(math.floor(cancelled)) .. '.25', id) end
  end
  payloads[p + 1], payloads[p + 2], p = id, payload, p + 2
  dues[d + 1], dues[d + 2], d = due_text[text], id, d + 2
  created, taken[id], options[id] = created + 1, true, stored ~= '' and stored or nil
  longest = math.max(longest, #payload)
  if soon then noted[#noted + 1] = id end
  return 'CREATED'
end
for i = 1, count do
  replies[i] = one(i)
  whole = whole and (replies[i] == 'CREATED' or string.find(replies[i], '^EXISTS') ~= nil)
end
near = whole and #noted > 0 -- one mark for the call says it all
if until_ms and not whole and #noted > 0 and (not mark or mark % 1 > 0) then
  for _, id in ipairs(noted) do remember(limit, call .. ' ' .. id) end
  remember(limit .. '.5', call)
end
changed = d > 0
if changed then
  if make then make() end
  if p > 0 then redis.call('HSET', MESSAGES, unpack(payloads)) end
  redis.call('ZADD', SCHEDULED, unpack(dues))
  remove_ready(moved)
end
for id, stored in pairs(options) do
  if stored then set_attrs(id, 0, 0, nil, stored, '') else
    local failures, crashes, _, old, reason = attrs_of(id)
    set_attrs(id, failures, crashes, nil, old, reason)
  end
end
head, length = nil, nil
end -- of what is not all new
memory = memory or {}
if near and until_ms then memory[#memory + 1], memory[#memory + 2] = limit, call end
if #memory > 0 then
--- use: trim_recent
redis.call('ZADD', RECENT, unpack(memory))
trim_recent(#memory)
end
any_ended = any_ended or '0'
if moved_near and string.find(any_ended, '^%d+$') and now_up + REPEAT_MS + 1 > tonumber(any_ended) then
  redis.call('HINCRBY', META, 'ended_until', int(now_up + REPEAT_MS + 1 - tonumber(any_ended)))
end
if longest > largest then -- of all payloads that were ever stored, as a power of two: what reads many reckons with it
  local bytes = 4096
  while bytes < longest do bytes = 2 * bytes end
  redis.call('HINCRBY', META, 'largest_payload_bytes', int(bytes - (largest > 4096 and largest or 0)))
end
if created > 0 then redis.call('HINCRBY', META, 'pushed', created) end
return {finish(changed, false, head, old_deadline, length), replies}

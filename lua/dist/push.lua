#!lua
-- Made by scripts/lua-dist from lua/push.lua and lua/blocks: change these, not this file.
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

local SCHEDULED, READY, LEASES, CLAIMS, MESSAGES, ATTRS, DEAD, RECENT, NODES, META = unpack(KEYS)
local base, queue, slash, partition = string.match(META or '', '^(dueq:{([^{}/%c]+)(/?)(%d*)}):meta$')
if #KEYS ~= 10 or not base or #queue > 128 or #slash > #partition or SCHEDULED ~= base .. ':scheduled' or READY ~= base .. ':ready'
  or LEASES ~= base .. ':leases' or CLAIMS ~= base .. ':claims' or MESSAGES ~= base .. ':messages' or ATTRS ~= base .. ':attrs'
  or DEAD ~= base .. ':dead' or RECENT ~= base .. ':recent' or NODES ~= base .. ':nodes' then
  return redis.error_reply('BADKEYS give the ten keys of one queue, in their order: dueq:{NAME}:scheduled, ready, leases, claims, messages, attrs, dead, recent, nodes, meta')
end
local layout, incarnation, seq, paused, test = unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq') end
local now_us
if ARGV[1] == '' then
  local time = redis.call('TIME')
  now_us = time[1] * 1000000 + time[2]
elseif test and string.find(ARGV[1] or '', '^%d+%.?%d*$') then
  now_us = math.floor(ARGV[1] * 1000 + 0.5)
else
  return redis.error_reply('BADNOW ARGV[1] must be empty: only a queue whose meta has a field test takes another clock')
end
local now, now_up = math.floor(now_us / 1000), math.ceil(now_us / 1000)
local REPEAT_MS = 12000 -- how far ahead a push's until may be, and how long an id that is gone early is remembered
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back: whatever a script writes, it has read before, so that a wrong type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
local function finish(changed, quiet, head, deadline, length) -- what a script does not tell of the three is read again, if it changed anything
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then seq = redis.call('HINCRBY', META, 'seq', '1') end
  head, deadline = head or changed and first_score(SCHEDULED) or old_head, deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
      local wake = base .. ':wake'
      local tokens = tonumber(redis.pcall('LLEN', wake)) or 2
      -- Where a slot arrives the wake-up list may follow, and one made here would stand in its way: there these two keys are refused.
      if tokens == 0 and not tonumber(redis.pcall('EXISTS', META, wake)) then tokens = 2 end
      for _ = tokens, 1 do redis.pcall('RPUSH', wake, '1') end
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  return {now_us, incarnation, tonumber(seq or 0), head < math.huge and head or -1, deadline < math.huge and deadline or -1, paused and 1 or 0}
end
-- A function costs as much as a command when it is made: what most calls do without is made where it is needed.
local make -- may be called twice: what it has made it does not make again
if not layout then
local function create()
  if layout then return end
  local sentinel = '\0' .. string.rep('-', 70)
  for i, read in ipairs({'ZCARD', 'LLEN', 'ZCARD', 'HLEN', 'HLEN', 'HLEN', 'ZCARD', 'ZCARD', 'ZCARD'}) do redis.call(read, KEYS[i]) end
  layout, incarnation = '1', string.sub(redis.sha1hex(int(now_us) .. base .. table.concat(ARGV, ' ', 1, math.min(#ARGV, 4))), 1, 16)
  for _, zset in ipairs({SCHEDULED, LEASES, DEAD, RECENT, NODES}) do redis.call('ZADD', zset, '+inf', sentinel) end
  for _, hash in ipairs({CLAIMS, MESSAGES, ATTRS}) do redis.call('HSET', hash, sentinel, '') end
  if redis.call('LINDEX', READY, 0) ~= sentinel then redis.call('LPUSH', READY, sentinel) end
  redis.call('HSET', META, sentinel, '', 'incarnation', incarnation, 'layout', layout) -- last: until then the queue does not exist
end
make = create
end
local function due_ms(text) -- '<unix ms>' or '+<delay ms>'; nothing if it is neither or beyond 100 years
  local ahead = string.byte(text) == 43
  if #text > (ahead and 16 or 15) or not string.find(text, '^%+?%d+$') then return nil end
  local due = tonumber(text) + (ahead and now_up or 0)
  return due <= now_up + 3155760000000 and due or nil
end
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
local function state_of(id)
  if (string.byte(id) or 0) < 32 then return 'absent' end -- a sentinel, or a claim's lease: nobody's message
  if redis.call('ZSCORE', SCHEDULED, id) then return 'scheduled' end
  if redis.call('HEXISTS', CLAIMS, id) == 1 then return 'leased' end
  if redis.call('ZSCORE', DEAD, id) then return 'dead' end
  return redis.call('HEXISTS', MESSAGES, id) == 1 and 'ready' or 'absent'
end
local entries, listed
local function ready_entry(id) -- of a ready message: '<due ms>:<id>'
  if not entries then
    entries, listed = {}, redis.call('LRANGE', READY, 1, -1)
    for _, found in ipairs(listed) do entries[string.match(found, '^%d+:(.*)$') or ''] = found end
  end
  return entries[id]
end
local function remove_ready(gone) -- removes these entries (the keys of a table) from ready, each from the nearer end: LREM scans
  local before = 0
  for i, found in ipairs(next(gone) and listed or {}) do
    if gone[found] then redis.call('LREM', READY, before <= #listed - i and 1 or -1, found) else before = before + 1 end
  end
end
local function parse_attrs(text) -- failures, crashes, original due or nil, options, last error
  local failures, crashes, due, options, reason = string.match(text or '', '^(%d+) (%d+) ([%d-]+) ([^\n]*)\n(.*)$')
  return tonumber(failures or 0), tonumber(crashes or 0), tonumber(due), options or '', reason or ''
end
local function attrs_of(id) return parse_attrs(redis.call('HGET', ATTRS, id)) end
local function set_attrs(id, failures, crashes, due, options, reason)
  if failures + crashes == 0 and not due and options == '' and reason == '' then return redis.call('HDEL', ATTRS, id) end
  redis.call('HSET', ATTRS, id, int(failures) .. ' ' .. int(crashes) .. ' ' .. (due and int(due) or '-') .. ' ' .. options .. '\n' .. reason)
end
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
local function trim_recent(count) -- up to so many remembered ids whose time is over
  local over = math.min(redis.call('ZCOUNT', RECENT, '-inf', now), count)
  if over > 0 then redis.call('ZREMRANGEBYRANK', RECENT, 0, over - 1) end
end
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

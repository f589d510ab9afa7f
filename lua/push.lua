#!lua
-- push: absent -> scheduled, for 1 to 1,000 messages.
-- KEYS   the ten of the queue
-- ARGV   now | until: server ms from which on a repetition is refused, or empty | per message: id, due, payload, options
--        until may end in ' fresh': whoever pushes has shown the ids to nobody, and if he repeats the call, repeats all of it
--        due: unix ms, or +ms from now. options: words of max_attempts=N, on_conflict=keep|reschedule|replace, reuse, traceparent=00-...
-- Reply  {header, {CREATED | EXISTS <state> | MOVED | FINISHED | EXPIRED | FULL <why> | INVALID <why>, ...}}; one CREATED alone if all are
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, OOM: nothing was written
-- Cost   O(log n) a message, and one scan of the ready window if a conflict moves a ready message
-- Again  EXISTS or FINISHED within `until` (at most 12 s ahead; of fresh ids if all are given), EXPIRED from then on. With reschedule, replace or reuse: pushes anew

--- block: prelude
local SCHEDULED, READY, LEASES, CLAIMS, MESSAGES, ATTRS, DEAD, RECENT, NODES, META = unpack(KEYS)
local base, queue, slash, partition = string.match(META or '', '^(dueq:{([^{}/%c]+)(/?)(%d*)}):meta$')
if #KEYS ~= 10 or not base or #queue > 128 or #slash > #partition or SCHEDULED ~= base .. ':scheduled' or READY ~= base .. ':ready'
  or LEASES ~= base .. ':leases' or CLAIMS ~= base .. ':claims' or MESSAGES ~= base .. ':messages' or ATTRS ~= base .. ':attrs'
  or DEAD ~= base .. ':dead' or RECENT ~= base .. ':recent' or NODES ~= base .. ':nodes' then
  return redis.error_reply('BADKEYS give the ten keys of one queue, in their order: dueq:{NAME}:scheduled, ready, leases, claims, messages, attrs, dead, recent, nodes, meta')
end
local layout, born, seq, paused, test = unpack(redis.call('HMGET', META, 'layout', 'born', 'seq', 'paused', 'test'))
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
local function first(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back: whatever a script writes, it has read before, so that a wrong type stops it in time.
local old_head, old_deadline, old_length = first(SCHEDULED), first(LEASES), redis.call('LLEN', READY)
local function finish(changed, quiet, head, deadline, length) -- what a script does not tell of the three is read again, if it changed anything
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then seq = redis.call('HINCRBY', META, 'seq', '1') end
  head, deadline = head or changed and first(SCHEDULED) or old_head, deadline or changed and first(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
      local bell = base .. ':bell'
      local tokens = tonumber(redis.pcall('LLEN', bell)) or 2
      -- Where a slot arrives the bell may follow, and one made here would stand in its way: there these two keys are refused.
      if tokens == 0 and not tonumber(redis.pcall('EXISTS', META, bell)) then tokens = 2 end
      for _ = tokens, 1 do redis.pcall('RPUSH', bell, '1') end
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  return {now_us, born, tonumber(seq or 0), head < math.huge and head or -1, deadline < math.huge and deadline or -1, paused and 1 or 0}
end
--- end
-- A function costs as much as a command when it is made: what most calls do without is made where it is needed.
local make -- may be called twice: what it has made it does not make again
if not layout then
--- block: create
local function create()
  if layout then return end
  local sentinel = '\0' .. string.rep('-', 70)
  for i, read in ipairs({'ZCARD', 'LLEN', 'ZCARD', 'HLEN', 'HLEN', 'HLEN', 'ZCARD', 'ZCARD', 'ZCARD'}) do redis.call(read, KEYS[i]) end
  layout, born = '1', string.sub(redis.sha1hex(int(now_us) .. base .. table.concat(ARGV, ' ', 1, math.min(#ARGV, 4))), 1, 16)
  for _, zset in ipairs({SCHEDULED, LEASES, DEAD, RECENT, NODES}) do redis.call('ZADD', zset, '+inf', sentinel) end
  for _, hash in ipairs({CLAIMS, MESSAGES, ATTRS}) do redis.call('HSET', hash, sentinel, '') end
  if redis.call('LINDEX', READY, 0) ~= sentinel then redis.call('LPUSH', READY, sentinel) end
  redis.call('HSET', META, sentinel, '', 'born', born, 'layout', layout) -- last: until then the queue does not exist
end
--- end
make = create
end
--- block: due
local function due_ms(text) -- '<unix ms>' or '+<delay ms>'; nothing if it is neither or beyond 100 years
  local ahead = string.byte(text) == 43
  if #text > (ahead and 16 or 15) or not string.find(text, '^%+?%d+$') then return nil end
  local due = tonumber(text) + (ahead and now_up or 0)
  return due <= now_up + 3155760000000 and due or nil
end
--- end
local count, limit, fresh = (#ARGV - 2) / 4, string.match(ARGV[2] or '', '^(%d*)(%D*)$')
if count < 1 or count > 1000 or count % 1 ~= 0 or not (fresh == '' or fresh == ' fresh' and limit ~= '') then
  return redis.error_reply('BADARGS push takes now, until (ms, or ms and fresh, or empty), then id, due, payload, options for 1 to 1000 messages')
end
local limit_ms, max_messages, max_payload = tonumber(limit), unpack(redis.call('HMGET', META, 'max_messages', 'max_payload_bytes'))
local room = max_messages and tonumber(max_messages) + 1 - redis.call('HLEN', MESSAGES) or math.huge
max_payload = tonumber(max_payload or 1048576)
local ARGV, ids, bytes, soon, text, near, score = ARGV, {}, 0 -- a local is found faster than a global
for i = 1, count do
  ids[i] = ARGV[4 * i - 1]
  bytes = bytes + #ids[i]
  if fresh ~= '' and ARGV[4 * i] ~= text then -- whether any may be gone before `until`: each attempt must find the same
    text, soon = ARGV[4 * i], soon or (tonumber(ARGV[4 * i]) or math.huge) <= (string.byte(ARGV[4 * i]) == 43 and REPEAT_MS or limit_ms)
  end
end
local found, json = redis.call('HMGET', MESSAGES, unpack(ids)), cjson.encode(ids)
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('ZCARD', DEAD)
-- JSON writes control bytes longer, and some others: one look in C spares a pattern for each id.
local plain = #json == bytes + 3 * count + 1
-- A few ids are remembered each; more that nobody else knows by their call: as all new, or (.5) as judged one by one.
local call, known = soon and count > 4 and '\3' .. redis.sha1hex(json), {}
local mark = tonumber(call and redis.call('ZSCORE', RECENT, call) or 0)
if not call and redis.call('ZCARD', RECENT) > 1 or mark > now and mark % 1 > 0 then known = redis.call('ZMSCORE', RECENT, unpack(ids))
elseif mark > now then for i = 1, count do known[i] = mark end end
local too_late = limit_ms and (limit_ms <= now or limit_ms > now + REPEAT_MS)
-- Most calls bring new messages without options and nothing else: those are gone through in a hurry. Whether an id comes twice
-- is what ZADD tells; then, and if anything else is not that simple, they are judged one by one.
local all_new, replies, created, head, length = not too_late and count <= room, {'CREATED'}, count, old_head, not make and old_length or nil
local remember, r, payloads, dues = {}, 0 -- r: how much is in remember
if all_new then
  payloads, dues, text = {unpack(ARGV, 1, 2 * count)}, {unpack(ARGV, 1, 2 * count)}, nil -- to be overwritten: of their size at once
  for i = 1, count do
    local at, j, id = 4 * i, 2 * i, ids[i]
    local payload = ARGV[at + 1]
    if ARGV[at] ~= text then
      local due = due_ms(ARGV[at])
      text, score = ARGV[at], due and (string.byte(ARGV[at]) == 43 and int(due) or ARGV[at])
      head, near = math.min(head, due or head), due and limit_ms and due - now <= REPEAT_MS
    end
    if not score or found[i] or known[i] or ARGV[at + 2] ~= '' or #id < 1 or #id > 200 or #payload > max_payload
      or not plain and string.find(id, '%c') then all_new = false break end
    payloads[j - 1], payloads[j], dues[j - 1], dues[j] = id, payload, score, id
    if near and not call then remember[r + 1], remember[r + 2], r = limit, id, r + 2 end
  end
end
if all_new then
  if make then make() end
  redis.call('HSET', MESSAGES, unpack(payloads)) -- first, as a consumer may not
  all_new = redis.call('ZADD', SCHEDULED, 'NX', unpack(dues)) == count
end
if not all_new then
--- block: place
local function place(id)
  if (string.byte(id) or 0) < 32 then return 'absent' end -- a sentinel, or a claim's lease: nobody's message
  if redis.call('ZSCORE', SCHEDULED, id) then return 'scheduled' end
  if redis.call('HEXISTS', CLAIMS, id) == 1 then return 'leased' end
  if redis.call('ZSCORE', DEAD, id) then return 'dead' end
  return redis.call('HEXISTS', MESSAGES, id) == 1 and 'ready' or 'absent'
end
--- end
--- block: entry
local entries
local function entry(id) -- of a ready message: '<due ms>:<id>'
  if not entries then
    entries = {}
    for _, found in ipairs(redis.call('LRANGE', READY, 1, -1)) do entries[string.match(found, '^%d+:(.*)$') or ''] = found end
  end
  return entries[id]
end
--- end
--- block: attrs
local function read_attrs(text) -- failures, crashes, original due or 0, options, last error
  local failures, crashes, due, options, reason = string.match(text or '', '^(%d+) (%d+) (%d+) ([^\n]*)\n(.*)$')
  return tonumber(failures or 0), tonumber(crashes or 0), tonumber(due or 0), options or '', reason or ''
end
local function attrs(id) return read_attrs(redis.call('HGET', ATTRS, id)) end
local function set_attrs(id, failures, crashes, due, options, reason)
  if failures + crashes + due == 0 and options == '' and reason == '' then return redis.call('HDEL', ATTRS, id) end
  redis.call('HSET', ATTRS, id, int(failures) .. ' ' .. int(crashes) .. ' ' .. int(due) .. ' ' .. options .. '\n' .. reason)
end
--- end
local function read_options(text) -- words into on_conflict, reuse and what is stored; nothing if one is unknown
  local on_conflict, reuse, limit, parent = 'keep', false, '', ''
  for word in string.gmatch(text, '[^ ]+') do
    local conflict, attempts = string.match(word, '^on_conflict=(%l+)$'), string.match(word, '^max_attempts=(%d+)$')
    local trace, span = string.match(word, '^traceparent=00%-([0-9a-f]+)%-([0-9a-f]+)%-[0-9a-f][0-9a-f]$')
    if conflict == 'keep' or conflict == 'reschedule' or conflict == 'replace' then on_conflict = conflict
    elseif word == 'reuse' then reuse = true
    elseif attempts and tonumber(attempts) >= 1 and tonumber(attempts) <= 1000000 then limit = 'max_attempts=' .. int(tonumber(attempts))
    elseif trace and #trace == 32 and #span == 16 and string.find(trace, '[^0]') and string.find(span, '[^0]') then parent = word
    else return nil end
  end
  return on_conflict, reuse, limit .. (limit ~= '' and parent ~= '' and ' ' or '') .. parent
end
local due_of, due_text, moved, options, taken, p, d = {}, {}, {}, {}, {}, 0, 0 -- how much is in payloads and dues
replies, payloads, dues, remember, created, r = {}, {}, {}, {}, 0, 0
local function one(i)
  local id, text, payload, words = ids[i], ARGV[4 * i], ARGV[4 * i + 1], ARGV[4 * i + 2]
  local due, on_conflict, reuse, stored = due_of[text], 'keep', false, ''
  if due == nil then
    due = due_ms(text) or false
    due_of[text], due_text[text] = due, due and (string.byte(text) == 43 and int(due) or text)
  end
  if words ~= '' then on_conflict, reuse, stored = read_options(words) end
  if #id < 1 or #id > 200 or not plain and string.find(id, '%c') then return 'INVALID id must be 1 to 200 bytes, none of them a control byte' end
  if not due then return 'INVALID due must be unix ms, or + and a delay in ms, at most 100 years ahead' end
  if #payload > max_payload then return 'INVALID payload has ' .. #payload .. ' bytes, the limit of this queue is ' .. int(max_payload) end
  if not on_conflict then return 'INVALID option: one of max_attempts=1..1000000, on_conflict=keep|reschedule|replace, reuse, traceparent=00-TRACE-SPAN-FLAGS' end
  if too_late then return 'EXPIRED' end
  local near = due - now <= REPEAT_MS
  if found[i] or taken[id] then
    local state = taken[id] and 'scheduled' or place(id)
    if on_conflict == 'keep' or state == 'leased' or state == 'dead' then return 'EXISTS ' .. state end
    if state == 'ready' then moved[#moved + 1] = entry(id) end
    if on_conflict == 'replace' then
      payloads[p + 1], payloads[p + 2], p, options[id] = id, payload, p + 2, stored
    else options[id] = options[id] or false end
    if near then remember[r + 1], remember[r + 2], r = int(now_up + REPEAT_MS), id, r + 2 end
    dues[d + 1], dues[d + 2], d, taken[id] = due_text[text], id, d + 2, true
    return 'MOVED'
  end
  local recent = known[i] and tonumber(known[i]) or 0
  if recent > now and not reuse then return 'FINISHED' end
  if created >= room then return 'FULL this queue may hold ' .. max_messages .. ' messages' end
  -- Used anew, it is no cancelled one any more: its time remains, and for repetitions of that cancel that it was one (.25).
  local past, ahead = recent > now and math.floor(recent), near and limit_ms or 0
  local anew = past and (recent - past == 0.5 or recent - past == 0.25 and ahead <= past) and '.25' or ''
  local keep = past and int(math.max(past, ahead)) .. anew or ahead > 0 and limit
  if keep then remember[r + 1], remember[r + 2], r = keep, id, r + 2 end
  payloads[p + 1], payloads[p + 2], p = id, payload, p + 2
  dues[d + 1], dues[d + 2], d = due_text[text], id, d + 2
  created, taken[id], options[id] = created + 1, true, stored ~= '' and stored or nil
  return 'CREATED'
end
for i = 1, count do replies[i] = one(i) end
if d == 0 then return {finish(false), replies} end
if make then make() end
if p > 0 then redis.call('HSET', MESSAGES, unpack(payloads)) end
redis.call('ZADD', SCHEDULED, unpack(dues))
for _, gone in ipairs(moved) do redis.call('LREM', READY, 1, gone) end
for id, stored in pairs(options) do
  if stored then set_attrs(id, 0, 0, 0, stored, '') else
    local failures, crashes, _, old, reason = attrs(id)
    set_attrs(id, failures, crashes, 0, old, reason)
  end
end
head, length = nil, nil; limit = limit .. '.5'
end -- of what is not all new
if call then remember[r + 1], remember[r + 2], r = limit, call, r + 2 end
if r > 0 then
--- block: forget
local function forget(count) -- up to so many remembered ids whose time is over
  local over = math.min(redis.call('ZCOUNT', RECENT, '-inf', now), count)
  if over > 0 then redis.call('ZREMRANGEBYRANK', RECENT, 0, over - 1) end
end
--- end
redis.call('ZADD', RECENT, unpack(remember))
forget(2 * count)
end
if created > 0 then redis.call('HINCRBY', META, 'pushed', created) end
return {finish(true, false, head, old_deadline, length), replies}

#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/depart.lua and lua/blocks: change these, not this file.
-- depart: takes messages out of this partition while the partitions change, to be stored in another one by `arrive`.
--         One batch at a time is on its way; until `done` or `back` each call replies the same one.
-- KEYS   the ten of the partition
-- ARGV   m and the epoch | done=N: batch N has arrived, and is forgotten; back=N: it never will, and is put back; or
--        empty | after: the number of an earlier batch, or 0; the next one gets a larger number | tag of the other
--        partition, with @ if it is in another store | stay: ms, 5,000 usually | up to 1,000 names: ids, or names of
--        RECENT that begin with a byte 5 or 6
--        A message departs if it is dead, due later than `stay` from now, or overdue by more than 1 s; a call takes 256
--        messages or about 256 KiB at most.
-- Reply  {header, number, tag, messages, batch}; {header, 0, '', 0, ''} if none is on its way
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, REMAPPED, BEHIND: nothing was written
-- Cost   O(log n) a name; one scan of the ready list if one is ready
-- Again  the same batch

local SCHEDULED, READY, LEASES, CLAIMS, MESSAGES, ATTRS, DEAD, RECENT, NODES, META = unpack(KEYS)
local base, queue, slash, partition = string.match(META or '', '^(dueq:{([^{}/%c]+)(/?)(%d*)}):meta$')
if #KEYS ~= 10 or not base or #queue > 128 or #slash > #partition
  or SCHEDULED ~= base .. ':scheduled' or READY ~= base .. ':ready' or LEASES ~= base .. ':leases'
  or CLAIMS ~= base .. ':claims' or MESSAGES ~= base .. ':messages' or ATTRS ~= base .. ':attrs'
  or DEAD ~= base .. ':dead' or RECENT ~= base .. ':recent' or NODES ~= base .. ':nodes' then
  return redis.error_reply('BADKEYS give the ten keys of one queue, in their order: dueq:{NAME}:scheduled, ready, '
    .. 'leases, claims, messages, attrs, dead, recent, nodes, meta')
end
local layout, incarnation, seq, paused, parked_until, closed_until =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'parked_until', 'closed_until'))
local function int(number) return string.format('%d', number) end
-- epoch: of the partition's map; nil without one. known, probes: what the fence finds.
local clock, epoch, known, probes = ARGV[1], nil, nil, nil
if layout and layout ~= '1' then
  if layout ~= '2' and layout ~= '3' and layout ~= '4' and layout ~= '5' then
    return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1, 2, 3, 4 or 5: use a newer dueq')
  end
  if layout == '2' or redis.call('HEXISTS', META, 'map') == 1 then
    epoch = tonumber(redis.call('HGET', META, 'epoch') or 0) or 0
  end
end
-- A call that names ids says which map chose the partition: ARGV[1] is m and its epoch, and in tests a blank and the
-- clock. Another map may have the ids elsewhere. p instead of m: the call creates nothing here, because the ids belong
-- to other partitions now; it finds those that have not moved yet.
--   known, probes  the epoch of the call, if it has one; whether it is such a probe
local form = clock and string.byte(clock)
if form == 109 or form == 112 then
  local digits, after = string.match(clock, '^.(%d+)(.*)$')
  known, clock = tonumber(digits), after == '' and '' or string.match(after or '', '^ (.+)$')
  probes = form == 112
end
if epoch or known or slash ~= '' then
  local behind = slash ~= '' and not epoch or epoch and known and known > epoch
  if behind then
    return redis.error_reply('BEHIND this partition has ' .. (epoch and 'an old' or 'no') .. ' map of the queue: call '
      .. 'remap here with forward and the map in meta of the home, and repeat the call')
  end
  if known ~= epoch then
    return redis.error_reply('REMAPPED this partition has ' .. (epoch and 'epoch ' .. int(epoch) or 'no map')
      .. ', the call has ' .. (known and 'epoch ' .. int(known) or 'no epoch') .. ': read the map in meta of the home, '
      .. 'find the partition of each id, and repeat the call with the epoch of the map')
  end
end
local now_us
if clock == '' then
  local time = redis.call('TIME')
  now_us = time[1] * 1000000 + time[2]
elseif string.find(clock or '', '^%d+%.?%d*$') and redis.call('HGET', META, 'test') then
  now_us = math.floor(clock * 1000 + 0.5)
else
  return redis.error_reply('BADNOW ARGV[1] must be empty: only a queue whose meta has a field test takes another clock')
end
local now, now_up = math.floor(now_us / 1000), math.ceil(now_us / 1000)
-- Nothing is promoted or claimed before `closed`: `opens`, the time of closed_until, or never while the queue is full.
-- False: it is open. The claim that uses up max_leased writes "full" before the time; lengths say whether it still is.
local opens, closed = false, false
if closed_until then
  opens = tonumber(string.match(closed_until, '^f?u?l?l? ?(%d+)$') or 0)
  opens = opens > now and opens
  closed = opens
  if string.byte(closed_until) == 102 then
    -- KEYS, which is global, and not the names of the keys: each local that finish uses costs 0.2 % of a call.
    local function is_full()
      local most = tonumber(string.match(redis.call('HGET', KEYS[10], 'max_leased') or '', '^%d+$') or '')
      -- Each message is in one state, so the leased ones are what the others leave.
      local leased = redis.call('HLEN', KEYS[5]) - redis.call('ZCARD', KEYS[1]) - redis.call('LLEN', KEYS[2])
        - redis.call('ZCARD', KEYS[7]) + 2
      return most and leased >= most
    end
    closed = is_full() and math.huge or opens
  end
end
local NEVER = 7258118400000 -- 2200-01-01: the due time of timers that wait for nothing
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time. A score costs as much as three lengths: that of LEASES is read once, at the end.
local old_head, old_length = first_score(SCHEDULED), redis.call('LLEN', READY)
redis.call('ZCARD', LEASES)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, length)
  head = head or changed and first_score(SCHEDULED) or old_head
  -- The end of a call: counts it, wakes nodes, makes `header`. As a function it costs as much as two commands, so the
  -- scripts of each message's life have it inline.
  --   changed, quiet  whether the call wrote something; whether it leaves the wake-up list and the channel alone
  --   head, length    the first score of SCHEDULED now; how many entries READY has, or nil: to be read
  if changed and layout then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  local next_deadline = first_score(LEASES)
  length = length or not changed and old_length
  if closed == math.huge and changed and not quiet then
    -- KEYS, which is global, and not the names of the keys: each local that finish uses costs 0.2 % of a call.
    local function is_full()
      local most = tonumber(string.match(redis.call('HGET', KEYS[10], 'max_leased') or '', '^%d+$') or '')
      -- Each message is in one state, so the leased ones are what the others leave.
      local leased = redis.call('HLEN', KEYS[5]) - redis.call('ZCARD', KEYS[1]) - redis.call('LLEN', KEYS[2])
        - redis.call('ZCARD', KEYS[7]) + 2
      return most and leased >= most
    end
    if not is_full() then -- a lease ended: wake nodes as for a new head
      local rest = tonumber(string.match(redis.call('HGET', META, 'closed_until') or '', '%d+$') or 0)
      closed = rest > now and rest
      redis.call('HSET', META, 'closed_until', int(rest))
      old_head, old_length = math.huge, 1
    end
  end
  if closed then -- as if no message were due earlier, and ready ones then
    length = length or redis.call('LLEN', READY)
    head, length = length > 1 and closed or math.max(head, closed), 1
    old_head = old_length > 1 and closed or math.max(old_head, closed)
  end
  if layout and not paused and not quiet then
    local parked = parked_until and (tonumber(parked_until) or 0) > now -- then each earlier head is published
    if head <= now or (length or redis.call('LLEN', READY)) > 1 then
      local wake = base .. ':wake'
      local tokens = tonumber(redis.pcall('LLEN', wake)) or 2
      -- While a slot is being migrated, EXISTS of two keys is refused. A wake-up list made here would then collide with
      -- the list that the source node still has to send, so the script makes none.
      if tokens == 0 and not tonumber(redis.pcall('EXISTS', META, wake)) then
        tokens = 2
      end
      for _ = tokens, 1 do
        redis.pcall('RPUSH', wake, '1')
      end
      if parked then -- a parked node does not wait on the wake-up list
        local first_ready = old_length < 2 and (length or redis.call('LLEN', READY)) > 1
        if first_ready or head < old_head then
          redis.pcall('SPUBLISH', base .. ':notice', int(first_ready and math.min(head, now) or head))
        end
      end
    elseif head < old_head and (parked or head - now <= 2000) then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local header = {now_us, '', 0, -1, -1, 0}
  if layout then
    header = {now_us, incarnation, tonumber(seq or 0), head < NEVER and head or -1,
      next_deadline < NEVER and next_deadline or -1, paused and 1 or 0, epoch}
  end
  return header
end
-- The batch that has left this partition and has not arrived for sure, in CLAIMS: the ids in it, each between two line
-- feeds; and the batch itself. META's `moving` says `<number> <tag> <messages>` of it, and is empty without one.
local DEPARTED_IDS, DEPARTED = '\4', '\5'
local function state_of(id)
  if (string.byte(id) or 0) < 32 then return 'absent' end -- the placeholder or an entry of a claim, no message
  if redis.call('ZSCORE', SCHEDULED, id) then return 'scheduled' end
  if redis.call('HEXISTS', CLAIMS, id) == 1 then return 'leased' end
  if redis.call('ZSCORE', DEAD, id) then return 'dead' end
  return redis.call('HEXISTS', MESSAGES, id) == 1 and 'ready' or 'absent'
end
local entries, listed
local function ready_entry(id) -- of a ready message: '<due ms>:<id>'
  if not entries then
    entries, listed = {}, redis.call('LRANGE', READY, 1, -1)
    for _, found in ipairs(listed) do
      entries[string.match(found, '^%d+:(.*)$') or ''] = found
    end
  end
  return entries[id]
end
-- Removes these entries (the keys of `gone`) from READY. LREM scans, so it starts from the nearer end.
local function remove_ready(gone)
  local before = 0
  for i, found in ipairs(next(gone) and listed or {}) do
    if gone[found] then
      redis.call('LREM', READY, before <= #listed - i and 1 or -1, found)
    else
      before = before + 1
    end
  end
end
-- ATTRS keeps the life of a message under this byte and the id: '<ms> <word> <due> <began> <node> <text>', a line for
-- each event, the latest last; what is unknown is -, or left out at the end. RECENT has the same name of a message that
-- has ended, until its life is forgotten.
local LIFE_MARK = '\7'
local verdict, number = string.match(ARGV[2] or '', '^(%l*)=?(%d*)$')
local function whole(text) return tonumber(string.match(text or '', '^%d+$') or '') end
local after, tag, stay = whole(ARGV[3]), ARGV[4], whole(ARGV[5])
local function is_tag(text) -- whether it is the name of a partition: - or a number up to 999999999
  return text == '-' or text == '0' or #text <= 9 and string.find(text, '^[1-9]%d*$')
end
local function is_far_tag(text) -- whether it names a partition in the other store
  return string.byte(text) == 64 and is_tag(string.sub(text, 2))
end
if #ARGV < 5 or #ARGV > 1005 or not after or not stay or not (is_tag(tag) or is_far_tag(tag))
  or tag == (slash == '' and '-' or partition)
  or not (verdict == '' and number == '' or (verdict == 'done' or verdict == 'back') and number ~= '') then
  return redis.error_reply('BADARGS depart takes now, done=N, back=N or empty, number, tag of another partition, ms, '
    .. 'then 0 to 1000 names')
end
if #ARGV > 5 then
  redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES)
redis.call('ZCARD', DEAD); redis.call('ZCARD', RECENT)
local moving, departed = unpack(redis.call('HMGET', META, 'moving', 'departed'))
local changed = false
local current, to, messages = string.match(moving or '', '^(%d+) (%S+) (%d+)$')
if current and current == number then
  if verdict == 'back' then
    -- Stores the records of a batch: name, place, score, payload, attrs. place: scheduled, dead, recent for a name of
    -- RECENT, or life of a message before it. An id that the partition has is left as it is: what it has is newer. Only
    -- with commands that a consumer may use, whose node ends the batch of a process that died.
    -- Returns how many messages were stored.
    local function land(records)
      local longest, largest, expires, windows_until = 4096, 4096, false, 0
      local scheduled, dead, attributes, stored = {}, {}, {}, {}
      for i = 1, #records, 5 do
        local name, place, score, payload, attrs = unpack(records, i, i + 4)
        if place == 'recent' then
          local known = tonumber(redis.call('ZMSCORE', RECENT, name)[1] or -1)
          if known < 0 or known > 0 and known <= now then -- 0: a cancel has ended the window
            redis.call('ZADD', RECENT, score, name)
          end
          if string.byte(name) == 5 then
            windows_until = math.max(windows_until, tonumber(score))
          end
        elseif place == 'life' then
          if stored[string.sub(name, 2)] and (layout or '') > '4' then
            attributes[#attributes + 1] = name
            attributes[#attributes + 1] = payload
          end
        elseif redis.call('HSETNX', MESSAGES, name, payload) == 1 then
          stored[name] = true
          local into = place == 'dead' and dead or scheduled
          into[#into + 1] = score
          into[#into + 1] = name
          if attrs ~= '' then
            attributes[#attributes + 1] = name
            attributes[#attributes + 1] = attrs
            expires = expires or string.find(attrs, '^[^\n]*expires=') ~= nil
          end
          longest = math.max(longest, #payload)
        end
      end
      if #scheduled > 0 then
        redis.call('ZADD', SCHEDULED, unpack(scheduled))
      end
      if #dead > 0 then
        redis.call('ZADD', DEAD, unpack(dead))
      end
      if #attributes > 0 then
        redis.call('HSET', ATTRS, unpack(attributes))
      end
      if expires then -- claim looks for messages that have expired
        redis.call('HSET', META, 'expiring', '1', 'selective', '1')
      end
      if windows_until > (tonumber(redis.call('HGET', META, 'windows_until') or '') or 0) then
        redis.call('HSET', META, 'windows_until', int(windows_until))
      end
      largest = math.max(4096, tonumber(redis.call('HGET', META, 'largest_payload_bytes') or '') or 4096)
      if longest > largest then -- of all payloads that were ever stored, as a power of two: claim plans its reads by it
        local bytes = 4096
        while bytes < longest do
          bytes = 2 * bytes
        end
        redis.call('HINCRBY', META, 'largest_payload_bytes', int(bytes - (largest > 4096 and largest or 0)))
      end
      return (#scheduled + #dead) / 2
    end
    local batch = redis.call('HGET', CLAIMS, DEPARTED)
    land(batch and cmsgpack.unpack(batch) or {})
    -- As if the next number were used: a process that looks for what is left sees that something came back.
    departed = int((tonumber(departed or 0) or 0) + 1)
    redis.call('HSET', META, 'departed', departed)
  end
  redis.call('HDEL', CLAIMS, DEPARTED_IDS, DEPARTED)
  redis.call('HSET', META, 'moving', '')
  current, to, messages, changed = nil, nil, nil, true
end
if current or #ARGV == 5 then
  local batch = current and redis.call('HGET', CLAIMS, DEPARTED) or ''
  return {finish(changed), tonumber(current or 0), to or '', tonumber(messages or 0), batch}
end
local records, r, ids, bytes, unlisted = {}, 0, {}, 0, {}
messages = 0
local function add(name, place, score, payload, attrs)
  r, records[r + 1], records[r + 2], records[r + 3], records[r + 4], records[r + 5] =
    r + 5, name, place, score, payload, attrs
  bytes = bytes + #name + #payload + #attrs + 32
end
local function depart_memory(names)
  local gone = {}
  for i, score in ipairs(redis.call('ZMSCORE', RECENT, unpack(names))) do
    if score and tonumber(score) > now then
      add(names[i], 'recent', score, '', '')
      gone[#gone + 1] = names[i]
    end
  end
  if #gone > 0 then
    redis.call('ZREM', RECENT, unpack(gone))
  end
end
-- What is due soon stays: it would be late if the process that moves it died.
local function may_depart(score) return score > now + stay or score < now - 1000 end
local function depart_from(zset, place, found, scores) -- found: ids that are in this zset, or nil for ready ones
  if #found == 0 then return end
  local windows, payloads = {}, redis.call('HMGET', MESSAGES, unpack(found))
  for i, attrs in ipairs(redis.call('HMGET', ATTRS, unpack(found))) do
    ids[#ids + 1], windows[i] = found[i], '\5' .. found[i]
    add(found[i], place, scores[i], payloads[i] or '', attrs or '')
  end
  if layout > '4' then
    local names = {}
    for i, id in ipairs(found) do
      names[i] = LIFE_MARK .. id
    end
    for i, life in ipairs(redis.call('HMGET', ATTRS, unpack(names))) do
      if life then
        add(names[i], 'life', '0', life, '')
      end
    end
    redis.call('HDEL', ATTRS, unpack(names))
  end
  messages = messages + #found
  if zset then
    redis.call('ZREM', zset, unpack(found))
  end
  redis.call('HDEL', MESSAGES, unpack(found))
  redis.call('HDEL', ATTRS, unpack(found))
  depart_memory(windows)
end
local function depart_other(id) -- one that is not scheduled
  local state = state_of(id)
  if state == 'dead' then
    depart_from(DEAD, 'dead', {id}, {redis.call('ZSCORE', DEAD, id)})
  elseif state == 'ready' then
    local entry = ready_entry(id) or '0:'
    local score = string.match(entry, '^%d+')
    if tonumber(score) < now - 1000 then
      unlisted[entry] = true
      depart_from(nil, 'scheduled', {id}, {score})
    end
  end
end
local function depart(chunk)
  local found, scores, others = {}, {}, {}
  for i, score in ipairs(redis.call('ZMSCORE', SCHEDULED, unpack(chunk))) do
    if not score then
      others[#others + 1] = chunk[i]
    elseif may_depart(tonumber(score)) then
      found[#found + 1], scores[#scores + 1] = chunk[i], score
    end
  end
  depart_from(SCHEDULED, 'scheduled', found, scores)
  for _, id in ipairs(others) do
    if bytes >= 262144 then break end
    depart_other(id)
  end
end
-- Payloads are read together as far as their largest size allows.
local largest = tonumber(redis.call('HGET', META, 'largest_payload_bytes') or '') or 4096
local size, chunk, seen = math.max(1, math.floor(262144 / math.max(largest, 4096))), {}, {}
for i = 6, #ARGV do
  local name, mark = ARGV[i], string.byte(ARGV[i]) or 0
  if mark == 5 or mark == 6 then
    depart_memory({name})
    ids[#ids + 1] = string.sub(name, mark == 5 and 2 or 3)
  elseif mark >= 32 and not seen[name] then
    chunk[#chunk + 1], seen[name] = name, true
  end
  if #chunk > 0 and (i == #ARGV or #chunk >= size or #ids + #chunk >= 256) then
    depart(chunk)
    chunk = {}
  end
  if #ids >= 256 or bytes >= 262144 then break end
end
if r == 0 then return {finish(changed), 0, '', 0, ''} end
remove_ready(unlisted)
current = int(math.max(now_us, after + 1, (tonumber(departed or 0) or 0) + 1))
local batch = cmsgpack.pack(records)
redis.call('HSET', CLAIMS, DEPARTED_IDS, '\n' .. table.concat(ids, '\n') .. '\n', DEPARTED, batch)
redis.call('HSET', META, 'moving', current .. ' ' .. tag .. ' ' .. int(messages), 'departed', current)
return {finish(true), tonumber(current), tag, messages, batch}

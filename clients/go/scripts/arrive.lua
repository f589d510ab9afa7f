#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/arrive.lua and lua/blocks: change these, not this file.
-- arrive: stores a batch that `depart` took out of another partition; or decides that it never will.
-- KEYS   the ten of the partition
-- ARGV   m and the epoch | tag of the other partition, with @ if it is in another store | number of the batch
--        | the batch, as depart replied it; empty: if it has not arrived, it never will
-- Reply  {header, APPLIED <messages stored> | VOID <largest number from that partition> | ABSENT}
--        APPLIED: now or earlier; VOID: it has not arrived, and never will
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, REMAPPED, BEHIND: nothing was written
-- Cost   O(log n) a message
-- Again  APPLIED 0, or VOID

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
local function is_tag(text) -- whether it is the name of a partition: - or a number up to 999999999
  return text == '-' or text == '0' or #text <= 9 and string.find(text, '^[1-9]%d*$')
end
local function is_far_tag(text) -- whether it names a partition in the other store
  return string.byte(text) == 64 and is_tag(string.sub(text, 2))
end
local tag, number, batch = ARGV[2], tonumber(string.match(ARGV[3] or '', '^%d+$') or ''), ARGV[4]
local function read_batch() -- its records, or nil
  local is_read, records = pcall(cmsgpack.unpack, batch)
  if not is_read or type(records) ~= 'table' or #records == 0 or #records % 5 > 0 or #records > 3840 then
    return nil
  end
  for i = 1, #records, 5 do
    local name, place, score, payload, attrs = unpack(records, i, i + 4)
    if type(name) ~= 'string' or type(score) ~= 'string' or type(payload) ~= 'string' or type(attrs) ~= 'string'
      or not string.find(score, '^%d+%.?%d*$') or #name < 1 or #name > 202
      or not (place == 'recent' and string.find(name, '^[\5\6]') or place == 'life' and string.find(name, '^\7')
        or (place == 'scheduled' or place == 'dead') and not string.find(name, '%c')) then
      return nil
    end
  end
  return records
end
local records = batch and batch ~= '' and read_batch()
if #ARGV ~= 4 or not (is_tag(tag) or is_far_tag(tag)) or not number or number < 1
  or number >= 9007199254740992 or records == nil then
  return redis.error_reply('BADARGS arrive takes now, tag of another partition, number, batch')
end
if records then
  redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES)
redis.call('ZCARD', DEAD); redis.call('ZCARD', RECENT)
if not layout then return {finish(false), 'ABSENT'} end
local field = 'arrived:' .. tag
-- The last batches of that partition, oldest first, each with a v behind it if it is void. One at a time is on its way,
-- with growing numbers; after a failover the partition may ask for one again that it had sent before its last.
local known, last = {}, 0
for text, void in string.gmatch(redis.call('HGET', META, field) or '', '(%d+)(v?)') do
  last = tonumber(text)
  known[#known + 1] = text .. void
  if last == number then
    return {finish(false), void == '' and 'APPLIED 0' or 'VOID ' .. text}
  end
end
if number < last then return {finish(false), 'VOID ' .. int(last)} end
known[#known + 1] = int(number) .. (records and '' or 'v')
redis.call('HSET', META, field, table.concat(known, ' ', math.max(1, #known - 7)))
if not records then return {finish(true), 'VOID ' .. int(number)} end
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
return {finish(true), 'APPLIED ' .. int(land(records))}

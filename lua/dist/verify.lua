#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/verify.lua and lua/blocks: change these, not this file.
-- verify: checks the parts of the queue that are the same whatever its messages are, and repairs them if asked:
--         placeholders, numbers in meta, encodings, the wake-up list, the ready limit. `audit` checks the messages.
-- KEYS   the ten of the queue
-- ARGV   now | 1 to repair, else empty
-- Reply  {header, {{kind, what, detail, 1 if repaired else 0}, ...}}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(1)
-- Again  finds what was not repaired

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
local function create() -- creates the queue, if it does not exist
  if layout then return end
  local placeholder = '\0' .. string.rep('-', 70)
  for i, read in ipairs({'ZCARD', 'LLEN', 'ZCARD', 'HLEN', 'HLEN', 'HLEN', 'ZCARD', 'ZCARD', 'ZCARD'}) do
    redis.call(read, KEYS[i])
  end
  local seed = int(now_us) .. base .. table.concat(ARGV, ' ', 1, math.min(#ARGV, 4))
  layout, incarnation = '1', string.sub(redis.sha1hex(seed), 1, 16)
  for _, zset in ipairs({SCHEDULED, LEASES, DEAD, RECENT, NODES}) do
    redis.call('ZADD', zset, '+inf', placeholder)
  end
  for _, hash in ipairs({CLAIMS, MESSAGES, ATTRS}) do
    redis.call('HSET', hash, placeholder, '')
  end
  if redis.call('LINDEX', READY, 0) ~= placeholder then
    redis.call('LPUSH', READY, placeholder)
  end
  -- Last, for a queue without a layout does not exist.
  redis.call('HSET', META, placeholder, '', 'incarnation', incarnation, 'layout', layout)
  redis.pcall('PUBLISH', base .. ':notice', incarnation) -- for workers on patterns; a hint, as all notices
end
local function is_counter(text) -- whether HINCRBY can add to it
  return text == '0' or #text <= 16 and string.find(text, '^[1-9]%d*$')
end
local repairs = ARGV[2] == '1'
if #ARGV ~= 2 or not (repairs or ARGV[2] == '') then
  return redis.error_reply('BADARGS verify takes now, 1 (to repair) or empty')
end
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
local placeholder, entries, findings, repaired = '\0' .. string.rep('-', 70), 0, {}, 0
local reads = {'ZCARD', 'LLEN', 'ZCARD', 'HLEN', 'HLEN', 'HLEN', 'ZCARD', 'ZCARD', 'ZCARD', 'HLEN'}
for i = 1, 9 do
  entries = entries + redis.call(reads[i], KEYS[i])
end
local function found(kind, what, detail, repair)
  if repairs and repair then
    repair()
    repaired = repaired + 1
  end
  findings[#findings + 1] = {kind, what, detail, repairs and repair and 1 or 0}
end

if not layout and entries > 0 then
  found('meta', 'layout', '', slash == '' and create) -- only remap creates a partition beside the home
end
if not layout then return {finish(false, true), findings} end
if not incarnation or incarnation == '' then
  found('meta', 'incarnation', '', function()
    incarnation = string.sub(redis.sha1hex(int(now_us) .. base), 1, 16)
    redis.call('HSET', META, 'incarnation', incarnation)
  end)
end
if seq and not is_counter(seq) then -- now_us is more than the number of calls can be
  found('meta', 'seq', seq, function() redis.call('HSET', META, 'seq', int(now_us)) end)
end
if not repairs then -- the header needs both
  seq, incarnation = seq and is_counter(seq) and seq or '0', incarnation or ''
end
local test = ARGV[1] == '' and redis.call('HGET', META, 'test')
if test then -- a caller with a clock of its own wants the field test
  found('meta', 'test', test, function() redis.call('HDEL', META, 'test') end)
end
local numbers = {'max_attempts', 'max_crashes', 'max_messages', 'max_payload_bytes', 'dead_keep_ms', 'dead_keep',
  'max_leased', 'max_throttle_ms', 'max_remembered', 'life_keep_ms', 'leader_until', 'last_beat', 'reap_after',
  'parked_until', 'epoch', 'mapped_ms', 'departed', 'roster', 'schedules', 'low_lists', 'dry_lists', 'break_until',
  'windows_until', 'ended_until', 'largest_payload_bytes', 'pushed', 'claimed', 'acked', 'repeated', 'retried',
  'released', 'crashed', 'died', 'cancelled', 'requeued', 'purged', 'trimmed', 'expired', 'throttled', 'snoozed'}
local values = redis.call('HMGET', META, unpack(numbers))
for i, name in ipairs(numbers) do
  local value = values[i]
  local sound = not value or i > 23 and is_counter(value) or i <= 23 and #value <= 16 and string.find(value, '^%d+$')
  if not sound then
    found('meta', name, value, function()
      if name == 'largest_payload_bytes' then
        redis.call('HSET', META, name, '16777216') -- the most that a queue may allow
      else
        redis.call('HDEL', META, name)
      end
    end)
  end
end

for i, key in ipairs(KEYS) do
  if i == 2 then
    if redis.call('LINDEX', key, 0) ~= placeholder then
      found('placeholder', key, '', function() redis.call('LPUSH', key, placeholder) end)
    end
  elseif reads[i] == 'ZCARD' then
    if redis.call('ZSCORE', key, placeholder) ~= 'inf' then
      found('placeholder', key, '', function() redis.call('ZADD', key, '+inf', placeholder) end)
    end
  elseif redis.call('HEXISTS', key, placeholder) == 0 then
    found('placeholder', key, '', function() redis.call('HSET', key, placeholder, '') end)
  end
  if i ~= 2 and redis.call('EXISTS', key) == 1 and redis.call('OBJECT', 'ENCODING', key) == 'listpack' then
    found('listpack', key, '', function() -- a member this long makes it a table; it stays one without the member
      local long = placeholder .. string.rep('-', 8192)
      if reads[i] == 'ZCARD' then
        redis.call('ZADD', key, '+inf', long)
        redis.call('ZREM', key, long)
      else
        redis.call('HSET', key, long, '')
        redis.call('HDEL', key, long)
      end
    end)
  end
end

local wake, length = base .. ':wake', redis.call('LLEN', READY) - 1
local tokens = redis.pcall('LLEN', wake)
local ready = tonumber(string.match(redis.call('LINDEX', READY, 1) or '', '^%d+') or 'inf')
local waits = now - math.min(first_score(SCHEDULED), ready)
local last_beat, parked = redis.call('HGET', META, 'last_beat'), tonumber(parked_until or 0) or 0
local silence = now - math.max(tonumber(last_beat or 0) or 0, parked <= now + 60000 and parked or 0)
if type(tokens) == 'table' and string.find(tokens.err or '', 'WRONGTYPE') then
  found('wake', wake, '')
elseif tokens == 0 and not paused and waits > 3000 and silence > 3000 then -- a live node fills the list at each beat
  found('silent', wake, int(waits), function() end) -- finish fills the list
end
if length > 1000 then
  found('ready_limit', READY, int(length))
end
return {finish(repaired > 0, not repairs), findings}

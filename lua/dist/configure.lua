#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/configure.lua and lua/blocks: change these, not this file.
-- configure: sets limits of the queue. A limit that is not named stays as it is.
-- KEYS   the ten of the queue; configure makes them if they do not exist
-- ARGV   now | name, value pairs (default in brackets):
--        max_attempts 1 to 1,000,000 (20); max_crashes 0 to 1,000,000 (5);
--        max_messages 1 to 10^15, empty for none (none); max_payload_bytes 1 to 16,777,216 (1,048,576);
--        dead_keep_ms 1 to 3,155,760,000,000 (30 days);
--        dead_keep 1 to 10^15 (100,000);
--        rate N/W/B, at most N starts in any W ms and B at once: N 1 to 1,000,000, W 1 to 2,592,000,000 (30 days),
--        B 1 to N; empty for none (none); max_leased 1 to 1,000,000, empty for none (none);
--        max_throttle_ms 1 to 3,155,760,000,000 (15 minutes); max_remembered 1 to 10^15 (1,000,000);
--        life_keep_ms 0 to 3,155,760,000,000, empty for none (none): it gives the queue layout 5;
--        layout 3, which releases before 0.2 refuse: on_conflict=next needs it
-- Reply  {header, OK}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(1)
-- Again  the same

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
local most = {max_attempts = 1000000, max_crashes = 1000000, max_messages = 1e15, max_payload_bytes = 16777216,
  dead_keep_ms = 3155760000000, dead_keep = 1e15, max_leased = 1000000, max_throttle_ms = 3155760000000, rate = 0,
  max_remembered = 1e15, life_keep_ms = 3155760000000, layout = 3}
local may_be_empty = {max_messages = true, max_leased = true, rate = true, life_keep_ms = true}
local function is_rate(text)
  local starts, window_ms, at_once = string.match(text, '^([1-9]%d*)/([1-9]%d*)/([1-9]%d*)$')
  return starts and tonumber(starts) <= 1000000 and tonumber(window_ms) <= 2592000000
    and tonumber(at_once) <= tonumber(starts)
end
if #ARGV < 3 or #ARGV % 2 == 0 then
  return redis.error_reply('BADARGS configure takes now, then pairs of name and value')
end
for i = 2, #ARGV, 2 do
  local name, value = ARGV[i], ARGV[i + 1]
  local number = string.find(value, '^%d+$') and tonumber(value)
  local least = (name == 'max_crashes' or name == 'life_keep_ms') and 0 or name == 'layout' and 3 or 1
  if not most[name] then
    return redis.error_reply('BADARGS configure knows max_attempts, max_crashes, max_messages, max_payload_bytes, '
      .. 'dead_keep_ms, dead_keep, rate, max_leased, max_throttle_ms, max_remembered, life_keep_ms, layout')
  end
  if value == '' and may_be_empty[name] or name == 'rate' and is_rate(value) then
    number = least
  elseif name == 'rate' then
    return redis.error_reply('BADARGS rate must be N/W/B: N starts 1 to 1000000, in a window of W ms 1 to 2592000000, '
      .. 'of them at once B 1 to N')
  elseif not (number and number >= least and number <= most[name]) then
    return redis.error_reply('BADARGS ' .. name .. ' must be ' .. least .. ' to ' .. int(most[name]))
  end
end
if slash ~= '' and not epoch then -- only remap creates a partition beside the home
  return redis.error_reply('BEHIND this partition has ' .. (epoch and 'an old' or 'no') .. ' map of the queue: call '
    .. 'remap here with forward and the map in meta of the home, and repeat the call')
end
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
create()
for i = 2, #ARGV, 2 do
  if ARGV[i] == 'layout' then
    layout = math.max(layout, 3) .. '' -- of schedules it is 4
    redis.call('HSET', META, 'layout', layout)
  elseif ARGV[i + 1] == '' then
    redis.call('HDEL', META, ARGV[i])
  else
    if ARGV[i] == 'life_keep_ms' then
      -- First of all, for scripts of an older release must not work on it. A queue of layout 3 may have next messages.
      redis.call('HSET', META, 'layout', '5', unpack(layout > '2' and layout < '5' and {'nexts', '1'} or {}))
      layout = '5'
    end
    redis.call('HSET', META, ARGV[i], ARGV[i + 1])
  end
end
local reopened
for i = 2, #ARGV, 2 do
  if ARGV[i] == 'rate' then
    -- If the rate closed the queue, opens it: the next claim computes the opening again. A pause or throttle stays.
    if opens and int(opens) == redis.call('HGET', META, 'rate_until') then
      local rest = tonumber(redis.call('HGET', META, 'break_until') or '') or 0
      opens = rest > now and rest
      redis.call('HSET', META, 'closed_until', (closed == math.huge and 'full ' or '') .. int(opens or 0))
      closed = closed == math.huge and closed or opens
      old_head, old_length = math.huge, 1 -- finish sees the head as new: it publishes it
      reopened = true
    end
  end
end
if redis.call('HGET', META, 'rate') or redis.call('HGET', META, 'max_leased') then
  redis.call('HSET', META, 'selective', '1') -- claim looks for limits
end
return {finish(true), 'OK'}

#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/extend.lua and lua/blocks: change these, not this file.
-- extend: sets a delivery's deadline to now + lease, never earlier than it was, and gives it a lease of its own.
--         CLAIMS keeps when the delivery began.
-- KEYS   the ten of the queue
-- ARGV   now | per delivery, 1 to 1,000: id, token, lease in ms, 1 to 86,400,000
-- Reply  {header, {OK <deadline ms> | GONE | LOST | INVALID <why>, ...}}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log leases) a delivery
-- Again  harmless

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
-- A claim has one lease for everything that it granted. First bytes of its names, before the token: LEASE_MARK of the
-- lease in LEASES and of the granted ids in CLAIMS; COUNT_MARK of the number of ids still under the lease, in CLAIMS.
-- SINCE_MARK, before an id: when the delivery of an extended message began, in CLAIMS. The audit of release 0.1 passes
-- over such a name.
local LEASE_MARK, COUNT_MARK, SINCE_MARK = '\1', '\2', '\0='
-- Extend gives an id a lease of its own. A + at the end of the id's claim says so.
local function has_own_lease(claim) return string.byte(claim, -1) == 43 end
-- Takes `count` ids from under the claim's lease. The lease ends with the last one.
local function release_from_claim(token, count)
  local held = tonumber(redis.call('HGET', CLAIMS, COUNT_MARK .. token))
  if held and held > count then
    redis.call('HSET', CLAIMS, COUNT_MARK .. token, held - count)
  elseif held then
    redis.call('HDEL', CLAIMS, LEASE_MARK .. token, COUNT_MARK .. token)
    redis.call('ZREM', LEASES, LEASE_MARK .. token)
  end
end
-- When a delivery began, in ms; 0 if that is unknown: scripts before version 27 of the library claimed or extended it.
-- CLAIMS has it of an extended delivery, under SINCE_MARK and the id. Any other began when its claim's lease did.
local function begun(record, deadline) -- record: what CLAIMS has under LEASE_MARK and the token
  local lease_ms = string.match(record or '', '^\3(%d+)\n')
  return lease_ms and math.max(0, deadline - lease_ms) or 0
end
-- Returns GONE or LOST; or nil, the id's value in CLAIMS and its original due time, if this token holds it.
local function refusal_of(id, token)
  if (string.byte(id) or 0) < 32 then return 'GONE' end -- the placeholder, a timer, the record of a claim: no message
  local claim = redis.call('HGET', CLAIMS, id)
  if claim and #token == 16 and string.sub(claim, 1, 16) == token then
    return nil, claim, tonumber(string.match(claim, '^%d+', 17)) or 0
  end
  return redis.call('HEXISTS', MESSAGES, id) == 1 and 'LOST' or 'GONE'
end
local function lease_member(id, claim) -- the member of LEASES that holds this id
  return has_own_lease(claim) and id or LEASE_MARK .. string.sub(claim, 1, 16)
end
local count = (#ARGV - 1) / 3
if count < 1 or count > 1000 or count % 1 ~= 0 then
  return redis.error_reply('BADARGS extend takes now, then id, token, lease ms for 1 to 1000 deliveries')
end
redis.call('HLEN', CLAIMS); redis.call('HLEN', MESSAGES)
local replies, changed = {}, 0
local starts = {} -- by token: when its deliveries began, as text
for i = 1, count do
  local id, lease_ms = ARGV[3 * i - 1], tonumber(ARGV[3 * i + 1])
  local refusal, claim = refusal_of(id, ARGV[3 * i])
  if not lease_ms or lease_ms < 1 or lease_ms > 86400000 or lease_ms % 1 ~= 0 then
    replies[i] = 'INVALID lease must be 1 to 86400000 ms'
  elseif refusal then
    replies[i] = refusal
  else
    local old = tonumber(redis.call('ZSCORE', LEASES, lease_member(id, claim)) or 0)
    local deadline = math.max(now_up + lease_ms, old)
    if not has_own_lease(claim) then
      local token = string.sub(claim, 1, 16)
      starts[token] = starts[token] or int(begun(redis.call('HGET', CLAIMS, LEASE_MARK .. token), old))
      redis.call('HSET', CLAIMS, id, claim .. '+', SINCE_MARK .. id, starts[token])
      release_from_claim(token, 1)
    end
    redis.call('ZADD', LEASES, deadline, id)
    replies[i], changed = 'OK ' .. int(deadline), changed + 1
  end
end
return {finish(changed > 0), replies}

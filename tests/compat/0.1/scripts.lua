#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/ack.lua and lua/blocks: change these, not this file.
-- ack: ends deliveries that were handled (leased -> absent).
-- KEYS   the ten of the queue
-- ARGV   now | per claim: token, how many ids follow, ids; 1 to 1,000 ids in all
-- Reply  {header, {OK | GONE | LOST, ...}}, one for each id; one OK alone if it is the result of all
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(1) a delivery, O(log leases) a claim that ends and a delivery that was extended
-- Again  GONE

local SCHEDULED, READY, LEASES, CLAIMS, MESSAGES, ATTRS, DEAD, RECENT, NODES, META = unpack(KEYS)
local base, queue, slash, partition = string.match(META or '', '^(dueq:{([^{}/%c]+)(/?)(%d*)}):meta$')
if #KEYS ~= 10 or not base or #queue > 128 or #slash > #partition
  or SCHEDULED ~= base .. ':scheduled' or READY ~= base .. ':ready' or LEASES ~= base .. ':leases'
  or CLAIMS ~= base .. ':claims' or MESSAGES ~= base .. ':messages' or ATTRS ~= base .. ':attrs'
  or DEAD ~= base .. ':dead' or RECENT ~= base .. ':recent' or NODES ~= base .. ':nodes' then
  return redis.error_reply('BADKEYS give the ten keys of one queue, in their order: dueq:{NAME}:scheduled, ready, '
    .. 'leases, claims, messages, attrs, dead, recent, nodes, meta')
end
local layout, incarnation, seq, paused, test =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq')
end
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
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0}
end
-- A claim has one lease for everything that it granted. First bytes of its names, before the token: LEASE_MARK of the
-- lease in LEASES and of the granted ids in CLAIMS; COUNT_MARK of the number of ids still under the lease, in CLAIMS.
local LEASE_MARK, COUNT_MARK = '\1', '\2'
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
local ids, groups, at = {}, {}, 2
while at <= #ARGV do
  local count = tonumber(ARGV[at + 1])
  if not count or count < 1 or count % 1 ~= 0 or at + 1 + count > #ARGV or #ids + count > 1000 then
    ids = {}
    break
  end
  local from = #ids + 1
  if from == 1 then
    ids = {unpack(ARGV, at + 2, at + 1 + count)} -- mostly all ids of the call
  else
    for i = at + 2, at + 1 + count do
      ids[#ids + 1] = ARGV[i]
    end
  end
  groups[#groups + 1] = {token = ARGV[at], from = from, to = #ids, ended = count}
  at = at + 2 + count
end
if #ids == 0 then
  return redis.error_reply(
    'BADARGS ack takes now, then token, number of ids, ids for one or more claims, 1 to 1000 ids in all')
end
local claims = redis.call('HMGET', CLAIMS, unpack(ids))
local has_attrs = redis.call('HLEN', ATTRS) > 1
redis.call('HLEN', MESSAGES)
local function fits(claim, token) return claim and #token == 16 and string.find(claim, token, 1, true) == 1 end
local replies, acked, extended, n = {'OK'}, ids, {}, #ids
-- Fast path: all ids are under the leases of their claims. HDEL finds an id that is given twice.
local sound = true
for _, group in ipairs(groups) do
  local claim
  for i = group.from, group.to do
    if claims[i] ~= claim then -- neighbours often share their claim and its due
      claim = claims[i]
      if not fits(claim, group.token) or has_own_lease(claim) then
        sound = false
        break
      end
    end
  end
end
local deleted = sound and redis.call('HDEL', CLAIMS, unpack(ids))
if deleted ~= n then -- one by one; each sees what the earlier ones did
  local taken = {}
  replies, acked, n = {}, {}, 0
  for _, group in ipairs(groups) do
    group.ended = 0
    for i = group.from, group.to do
      local id, claim = ids[i], claims[i]
      if taken[id] then
        replies[i] = 'GONE'
      elseif fits(claim, group.token) then
        n = n + 1
        replies[i], acked[n], taken[id] = 'OK', id, true
        if has_own_lease(claim) then
          extended[#extended + 1] = id
        else
          group.ended = group.ended + 1
        end
      else
        replies[i] = redis.call('HEXISTS', MESSAGES, id) == 1 and 'LOST' or 'GONE'
      end
    end
  end
  if n == 0 then return {finish(false), replies} end
  if not deleted then
    redis.call('HDEL', CLAIMS, unpack(acked))
  end
end
for _, group in ipairs(groups) do
  if group.ended > 0 then
    release_from_claim(group.token, group.ended)
  end
end
if #extended > 0 then
  redis.call('ZREM', LEASES, unpack(extended))
end
redis.call('HDEL', MESSAGES, unpack(acked))
if has_attrs then
  redis.call('HDEL', ATTRS, unpack(acked))
end
redis.call('HINCRBY', META, 'acked', n)
return {finish(true, false, old_head, nil, old_length), replies}
#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/again.lua and lua/blocks: change these, not this file.
-- again: schedules a repeating message's next tick (leased -> scheduled); its attempts start from zero.
-- KEYS   the ten of the queue
-- ARGV   now | per delivery, 1 to 1,000: id, token, due (unix ms, or +ms from now)
-- Reply  {header, {OK <due ms> | GONE | LOST | INVALID <why>, ...}}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log n) a delivery
-- Again  LOST

local SCHEDULED, READY, LEASES, CLAIMS, MESSAGES, ATTRS, DEAD, RECENT, NODES, META = unpack(KEYS)
local base, queue, slash, partition = string.match(META or '', '^(dueq:{([^{}/%c]+)(/?)(%d*)}):meta$')
if #KEYS ~= 10 or not base or #queue > 128 or #slash > #partition
  or SCHEDULED ~= base .. ':scheduled' or READY ~= base .. ':ready' or LEASES ~= base .. ':leases'
  or CLAIMS ~= base .. ':claims' or MESSAGES ~= base .. ':messages' or ATTRS ~= base .. ':attrs'
  or DEAD ~= base .. ':dead' or RECENT ~= base .. ':recent' or NODES ~= base .. ':nodes' then
  return redis.error_reply('BADKEYS give the ten keys of one queue, in their order: dueq:{NAME}:scheduled, ready, '
    .. 'leases, claims, messages, attrs, dead, recent, nodes, meta')
end
local layout, incarnation, seq, paused, test =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq')
end
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
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0}
end
local function parse_attrs(text) -- failures, crashes, original due or nil, options, last error
  local failures, crashes, due, options, reason = string.match(text or '', '^(%d+) (%d+) ([%d-]+) ([^\n]*)\n(.*)$')
  return tonumber(failures or 0), tonumber(crashes or 0), tonumber(due), options or '', reason or ''
end
local function attrs_of(id) return parse_attrs(redis.call('HGET', ATTRS, id)) end
local function set_attrs(id, failures, crashes, due, options, reason)
  if failures + crashes == 0 and not due and options == '' and reason == '' then
    return redis.call('HDEL', ATTRS, id)
  end
  local counts = int(failures) .. ' ' .. int(crashes) .. ' ' .. (due and int(due) or '-')
  redis.call('HSET', ATTRS, id, counts .. ' ' .. options .. '\n' .. reason)
end
local function due_ms(text) -- '<unix ms>' or '+<delay ms>' as unix ms; nil for other text and beyond 100 years
  local ahead = string.byte(text) == 43
  if #text > (ahead and 16 or 15) or not string.find(text, '^%+?%d+$') then return nil end
  local due = tonumber(text) + (ahead and now_up or 0)
  return due <= now_up + 3155760000000 and due or nil
end
-- A claim has one lease for everything that it granted. First bytes of its names, before the token: LEASE_MARK of the
-- lease in LEASES and of the granted ids in CLAIMS; COUNT_MARK of the number of ids still under the lease, in CLAIMS.
local LEASE_MARK, COUNT_MARK = '\1', '\2'
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
-- Returns GONE or LOST; or nil, the id's value in CLAIMS and its original due time, if this token holds it.
local function refusal_of(id, token)
  local claim = redis.call('HGET', CLAIMS, id)
  if claim and #token == 16 and string.sub(claim, 1, 16) == token then
    return nil, claim, tonumber(string.match(claim, '^%d+', 17)) or 0
  end
  return redis.call('HEXISTS', MESSAGES, id) == 1 and 'LOST' or 'GONE'
end
local function end_lease(id, claim)
  redis.call('HDEL', CLAIMS, id)
  if has_own_lease(claim) then
    redis.call('ZREM', LEASES, id)
  else
    release_from_claim(string.sub(claim, 1, 16), 1)
  end
end
local count = (#ARGV - 1) / 3
if count < 1 or count > 1000 or count % 1 ~= 0 then
  return redis.error_reply('BADARGS again takes now, then id, token, due for 1 to 1000 deliveries')
end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES)
local replies, changed = {}, 0
for i = 1, count do
  local id, due = ARGV[3 * i - 1], due_ms(ARGV[3 * i + 1])
  local refusal, claim = refusal_of(id, ARGV[3 * i])
  if not due then
    replies[i] = 'INVALID due must be unix ms, or + and a delay in ms, at most 100 years ahead'
  elseif refusal then
    replies[i] = refusal
  else
    local _, _, _, options = attrs_of(id)
    end_lease(id, claim)
    set_attrs(id, 0, 0, nil, options, '')
    redis.call('ZADD', SCHEDULED, due, id)
    replies[i], changed = 'OK ' .. int(due), changed + 1
  end
end
if changed > 0 then
  redis.call('HINCRBY', META, 'repeated', changed)
end
return {finish(changed > 0), replies}
#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/audit.lua and lua/blocks: change these, not this file.
-- audit: checks that each id is in exactly one state, a bounded step at a time, and repairs it if asked. A step checks
--        and repairs in one call, so workers and producers may go on. Call `verify` first: it repairs what audit needs.
-- KEYS   the ten of the queue
-- ARGV   now | part: ready, leases, claims, messages, scheduled, dead or attrs
--        | cursor: 0 for the first step, then as replied | limit: 1 to 1,000, about how many entries a step looks at
--        | 1 to repair, else empty
-- Reply  {header, next cursor (0 at the end), looked at, {{kind, id, detail, 1 if repaired else 0}, ...}}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(limit log n), and one scan of the ready list
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
local layout, incarnation, seq, paused, test =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq')
end
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
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0}
end
local function parse_attrs(text) -- failures, crashes, original due or nil, options, last error
  local failures, crashes, due, options, reason = string.match(text or '', '^(%d+) (%d+) ([%d-]+) ([^\n]*)\n(.*)$')
  return tonumber(failures or 0), tonumber(crashes or 0), tonumber(due), options or '', reason or ''
end
local function attrs_of(id) return parse_attrs(redis.call('HGET', ATTRS, id)) end
local function set_attrs(id, failures, crashes, due, options, reason)
  if failures + crashes == 0 and not due and options == '' and reason == '' then
    return redis.call('HDEL', ATTRS, id)
  end
  local counts = int(failures) .. ' ' .. int(crashes) .. ' ' .. (due and int(due) or '-')
  redis.call('HSET', ATTRS, id, counts .. ' ' .. options .. '\n' .. reason)
end
local function is_counter(text) -- whether HINCRBY can add to it
  return text == '0' or #text <= 16 and string.find(text, '^[1-9]%d*$')
end
-- A claim has one lease for everything that it granted. First bytes of its names, before the token: LEASE_MARK of the
-- lease in LEASES and of the granted ids in CLAIMS; COUNT_MARK of the number of ids still under the lease, in CLAIMS.
local LEASE_MARK, COUNT_MARK = '\1', '\2'
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
local part, cursor, limit, repairs = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5] == '1'
local zset = ({scheduled = SCHEDULED, leases = LEASES, dead = DEAD})[part or '']
local hash = ({claims = CLAIMS, messages = MESSAGES, attrs = ATTRS})[part or '']
if #ARGV ~= 5 or not (zset or hash or part == 'ready') or not string.find(cursor, '^%d+$')
  or not limit or limit < 1 or limit > 1000 or limit % 1 ~= 0 or not (repairs or ARGV[5] == '') then
  return redis.error_reply('BADARGS audit takes now, part (ready, leases, claims, messages, scheduled, dead or attrs), '
    .. 'cursor, limit (1 to 1000), 1 or empty')
end
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES); redis.call('ZCARD', DEAD)
-- HINCRBY of a bad counter would stop a repair halfway: until verify has repaired that, audit only checks.
local sound = is_counter(seq or '0') and is_counter(redis.call('HGET', META, 'died') or '0')
repairs, seq, incarnation = repairs and layout and sound, sound and seq or '0', incarnation or ''
local placeholder, findings, repaired = '\0' .. string.rep('-', 70), {}, 0
local function found(kind, id, detail, repair)
  if repairs then
    repair()
    repaired = repaired + 1
  end
  findings[#findings + 1] = {kind, id, detail, repairs and 1 or 0}
end

local entries = {} -- by id: its entries in READY
for _, entry in ipairs(redis.call('LRANGE', READY, 0, -1)) do
  local id = string.match(entry, '^%d+:(.+)$')
  if id then
    entries[id] = entries[id] or {}
    table.insert(entries[id], entry)
  elseif part == 'ready' and entry ~= placeholder then
    found('entry', entry, '', function() redis.call('LREM', READY, -1, entry) end)
  end
end
local function readable(claim) return string.find(claim, '^%d+%+?$', 17) end
local function shared(id, claim) -- whether the id is under the lease of its claim
  local ids = not has_own_lease(claim) and readable(claim)
    and redis.call('HGET', CLAIMS, LEASE_MARK .. string.sub(claim, 1, 16))
  return ids and string.find('\n' .. ids .. '\n', '\n' .. id .. '\n', 1, true)
end
local function leased(id)
  return shared(id, redis.call('HGET', CLAIMS, id) or '') or redis.call('ZSCORE', LEASES, id)
end
-- All states that an id is in; the first one is kept: a handler may have a leased message, an operator decides about a
-- dead one, and the due in SCHEDULED counts more than the one in READY.
local function states_of(id)
  local at = {leased(id) and 'leased' or nil}
  if redis.call('ZSCORE', DEAD, id) then
    at[#at + 1] = 'dead'
  end
  if redis.call('ZSCORE', SCHEDULED, id) then
    at[#at + 1] = 'scheduled'
  end
  for _ in ipairs(entries[id] or {}) do
    at[#at + 1] = 'ready'
  end
  return at
end
local function end_lease(id)
  local claim = redis.call('HGET', CLAIMS, id) or ''
  if shared(id, claim) then
    release_from_claim(string.sub(claim, 1, 16), 1)
  end
  redis.call('ZREM', LEASES, id)
  redis.call('HDEL', CLAIMS, id)
end
-- Takes the id out of all states but `keep` (nil: out of all); of its ready entries, keeps the first.
local function remove_from_states_except(id, keep)
  if keep ~= 'leased' then
    end_lease(id)
  end
  if keep ~= 'dead' then
    redis.call('ZREM', DEAD, id)
  end
  if keep ~= 'scheduled' then
    redis.call('ZREM', SCHEDULED, id)
  end
  for i, entry in ipairs(entries[id] or {}) do
    if keep ~= 'ready' or i > 1 then
      redis.call('LREM', READY, -1, entry)
    end
  end
end
local function bury(id, why)
  local failures, crashes, _, options, reason = attrs_of(id)
  remove_from_states_except(id, 'dead')
  set_attrs(id, failures, crashes, nil, options, why .. (reason ~= '' and '; before that: ' .. reason or ''))
  redis.call('ZADD', DEAD, now, id)
  redis.call('HINCRBY', META, 'died', 1)
end
local function hex(name) -- the token in a name of CLAIMS or LEASES
  return (string.gsub(string.sub(name, 2), '.', function(c) return string.format('%02x', string.byte(c)) end))
end
local function has_payload(id) return redis.call('HEXISTS', MESSAGES, id) == 1 end
local function report_without_payload(id, at) -- an id in the state `at`; the repair takes it out of all states
  found('hollow', id, at, function()
    remove_from_states_except(id)
    redis.call('HDEL', ATTRS, id)
  end)
end
local UNKNOWN_MS = 60000 -- length of a lease whose end is unknown; its handler can extend it
-- Gives the id a lease of its own, if it has none; and a claim with an unused token, if its claim is not readable.
local function give_own_lease(id, claim)
  if not readable(claim) then
    claim = string.sub(redis.sha1hex(int(now_us) .. id), 1, 16) .. int(now)
  end
  redis.call('HSET', CLAIMS, id, has_own_lease(claim) and claim or claim .. '+')
  redis.call('ZADD', LEASES, 'NX', now_up + UNKNOWN_MS, id)
end
local function look_claim(name) -- whether a claim's lease, ids and count fit together
  local token, held = string.sub(name, 2), 0
  local lease = redis.call('ZSCORE', LEASES, LEASE_MARK .. token)
  local ids, count = unpack(redis.call('HMGET', CLAIMS, LEASE_MARK .. token, COUNT_MARK .. token))
  for id in string.gmatch(ids or '', '[^\n]+') do
    local claim = redis.call('HGET', CLAIMS, id)
    if claim and string.find(claim, token, 1, true) == 1 and not has_own_lease(claim) then
      held = held + 1
    end
  end
  if not (lease or ids or count) then return end -- it may have ended within this step
  if lease and held > 0 and count == int(held) then return end
  local counts = 'counts ' .. (count or 'nothing') .. ', holds ' .. int(held)
  found('claim', hex(name), not ids and 'no ids' or not lease and 'no lease' or counts, function()
    redis.call('HSET', CLAIMS, COUNT_MARK .. token, held)
    if held == 0 then
      release_from_claim(token, 0)
    else
      redis.call('ZADD', LEASES, 'NX', now_up + UNKNOWN_MS, LEASE_MARK .. token)
    end
  end)
end

local look = {} -- by part: checks one entry
function look.leases(id, score)
  local deadline, claim = tonumber(score), redis.call('HGET', CLAIMS, id) or ''
  local is_claim = string.sub(id, 1, 1) == LEASE_MARK
  if is_claim then
    if claim == '' then return look_claim(id) end
  elseif not has_payload(id) then
    return report_without_payload(id, 'leased')
  elseif not readable(claim) then
    found('unclaimed', id, '', function()
      if #states_of(id) > 1 then -- leased and in another state: the other one is right
        end_lease(id)
      else
        give_own_lease(id, claim)
      end
    end)
  elseif not has_own_lease(claim) then
    found('unmarked', id, '', function()
      if shared(id, claim) then
        redis.call('ZREM', LEASES, id)
      else
        give_own_lease(id, claim)
      end
    end)
  end
  if deadline < 0 or deadline > now_up + 86400000 then
    found('score', is_claim and hex(id) or id, 'leased ' .. score, function()
      redis.call('ZADD', LEASES, 'XX', now_up + UNKNOWN_MS, id)
    end)
  end
end
function look.claims(id, claim)
  if string.sub(id, 1, 1) == COUNT_MARK then -- checked with its ids or its lease, if there are any
    local ids = LEASE_MARK .. string.sub(id, 2)
    if redis.call('HEXISTS', CLAIMS, ids) == 1 or redis.call('ZSCORE', LEASES, ids) then return end
  end
  if (string.byte(id) or 3) < 3 then return look_claim(id) end
  if redis.call('ZSCORE', LEASES, id) then return end -- checked with the leases
  if leased(id) then return has_payload(id) or report_without_payload(id, 'leased') end
  local alone = has_payload(id) and #states_of(id) == 0
  found(alone and not readable(claim) and 'unclaimed' or 'unleased', id, '', function()
    if alone then
      give_own_lease(id, claim)
    else
      redis.call('HDEL', CLAIMS, id)
    end
  end)
end
function look.messages(id)
  local at = states_of(id)
  if #at > 1 then
    found('doubled', id, table.concat(at, ' '), function() remove_from_states_except(id, at[1]) end)
  elseif #at == 0 and redis.call('HEXISTS', CLAIMS, id) == 0 then
    found('unplaced', id, '', function() bury(id, 'audit: it was in no state, and may have been handled') end)
  end
end
function look.scheduled(id, score)
  local due = tonumber(score)
  if not has_payload(id) then return report_without_payload(id, 'scheduled') end
  if due == math.huge then
    return found('score', id, 'scheduled inf', function() bury(id, 'audit: it was never due') end)
  end
  if due < 0 or due % 1 ~= 0 then
    found('score', id, 'scheduled ' .. score, function()
      redis.call('ZADD', SCHEDULED, math.max(0, math.ceil(due)), id)
    end)
  end
end
function look.dead(id, score)
  if not has_payload(id) then return report_without_payload(id, 'dead') end
  if tonumber(score) < 0 or tonumber(score) == math.huge then
    found('score', id, 'dead ' .. score, function() redis.call('ZADD', DEAD, now, id) end)
  end
end
function look.attrs(id, value)
  local readable_attrs = string.find(value, '^%d+ %d+ %d+ [^\n]*\n') or string.find(value, '^%d+ %d+ %- [^\n]*\n')
  if not has_payload(id) or not readable_attrs then
    found('attrs', id, has_payload(id) and '' or 'absent', function() redis.call('HDEL', ATTRS, id) end)
  end
end
local next_cursor, visited, looked = '0', {[placeholder] = true}, 0
if part == 'ready' then
  for id in pairs(entries) do
    looked = looked + 1
    if not has_payload(id) then
      report_without_payload(id, 'ready')
    end
  end
else
  local scan, step = {zset and 'ZSCAN' or 'HSCAN', zset or hash, cursor, 'COUNT', limit}, 2
  if part == 'messages' and (redis.REDIS_VERSION_NUM or 0) >= 0x00070400 then
    scan[6], step = 'NOVALUES', 1
  elseif part == 'messages' then -- HSCAN returns the payloads too: limit them to a few megabytes
    local largest = tonumber(redis.call('HGET', META, 'largest_payload_bytes') or 4096) or 16777216
    scan[5] = math.min(limit, math.max(1, math.floor(4194304 / largest)))
  elseif part == 'claims' then
    scan[5] = math.ceil(limit / 10) -- one claim may have granted a thousand ids
  end
  local page = redis.call(unpack(scan))
  next_cursor = page[1]
  for i = 1, #page[2], step do
    local id = page[2][i]
    if not visited[id] then
      visited[id], looked = true, looked + 1
      look[part](id, page[2][i + 1])
    end
  end
end
return {finish(repaired > 0, not repairs), next_cursor, looked, findings}
#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/beat.lua and lua/blocks: change these, not this file.
-- beat: records that a node lives, and does the leader's housekeeping.
--       A node that was silent for 3 s is forgotten. A node becomes or stays leader for 2.5 s. RECENT and DEAD are
--       trimmed, 500 entries a beat. After 3 s without any beat, or a clock that went back, reaps pause for 5 s, so
--       that live nodes can extend their leases first.
-- KEYS   the ten of the queue
-- ARGV   now | node: 1 to 200 bytes | stay, or leave to be forgotten at once
-- Reply  {header, 1 if this node is the leader else 0, live nodes, reap_after ms, ready messages}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log nodes + trimmed)
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
local layout, incarnation, seq, paused, test =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq')
end
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
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0}
end
local function trim_recent(count) -- removes at most `count` names of RECENT whose time is over
  local over = math.min(redis.call('ZCOUNT', RECENT, '-inf', now), count)
  if over > 0 then
    redis.call('ZREMRANGEBYRANK', RECENT, 0, over - 1)
  end
end
local node = ARGV[2]
if #ARGV ~= 3 or #node < 1 or #node > 200 or string.find(node, '%c')
  or not (ARGV[3] == 'stay' or ARGV[3] == 'leave') then
  return redis.error_reply('BADARGS beat takes now, node (1 to 200 bytes), stay or leave')
end
if not layout then return {finish(false), 0, 0, 0, 0} end
local leader, leader_until, last_beat, reap_after, keep_ms, keep = unpack(redis.call('HMGET', META,
  'leader', 'leader_until', 'last_beat', 'reap_after', 'dead_keep_ms', 'dead_keep'))
local dead = redis.call('ZCARD', DEAD) - 1
redis.call('ZCARD', NODES); redis.call('ZCARD', RECENT); redis.call('HLEN', MESSAGES); redis.call('HLEN', ATTRS)

local silence = now - tonumber(last_beat or now)
if silence > 3000 or silence < 0 then
  reap_after = now + 5000
end
redis.call('ZREMRANGEBYSCORE', NODES, '-inf', now - 3000)
redis.call('ZREMRANGEBYSCORE', NODES, '(' .. int(now), '(inf') -- beats of the future: the clock went back
local until_ms = tonumber(leader_until)
local free = not leader or leader == '' or until_ms <= now or until_ms > now + 2500
if ARGV[3] == 'leave' then
  redis.call('ZREM', NODES, node)
  if leader == node then
    leader = ''
  end
else
  redis.call('ZADD', NODES, now, node)
  if free then
    leader = node
  end
  if leader == node then
    leader_until = now + 2500
  end
end
redis.call('HSET', META, 'last_beat', now, 'reap_after', reap_after or 0, 'leader', leader or '',
  'leader_until', leader_until or 0)

trim_recent(500)
local too_old = redis.call('ZCOUNT', DEAD, '-inf', now - tonumber(keep_ms or 2592000000))
local over = math.max(dead - tonumber(keep or 100000), too_old)
if over > 0 then
  local ids = redis.call('ZRANGE', DEAD, 0, math.min(over, 500) - 1)
  redis.call('ZREMRANGEBYRANK', DEAD, 0, #ids - 1)
  redis.call('HDEL', MESSAGES, unpack(ids))
  redis.call('HDEL', ATTRS, unpack(ids))
  redis.call('HINCRBY', META, 'trimmed', #ids)
end
local ready = math.max(0, redis.call('LLEN', READY) - 1)
return {finish(over > 0), leader == node and 1 or 0, redis.call('ZCARD', NODES) - 1, tonumber(reap_after or 0), ready}
#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/bury.lua and lua/blocks: change these, not this file.
-- bury: declares messages dead (leased -> dead), with a reason; charges no attempt.
-- KEYS   the ten of the queue
-- ARGV   now | per delivery, 1 to 1,000: id, token, reason (its first 1,024 bytes are kept)
-- Reply  {header, {OK | GONE | LOST, ...}}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log n) a delivery
-- Again  LOST

local SCHEDULED, READY, LEASES, CLAIMS, MESSAGES, ATTRS, DEAD, RECENT, NODES, META = unpack(KEYS)
local base, queue, slash, partition = string.match(META or '', '^(dueq:{([^{}/%c]+)(/?)(%d*)}):meta$')
if #KEYS ~= 10 or not base or #queue > 128 or #slash > #partition
  or SCHEDULED ~= base .. ':scheduled' or READY ~= base .. ':ready' or LEASES ~= base .. ':leases'
  or CLAIMS ~= base .. ':claims' or MESSAGES ~= base .. ':messages' or ATTRS ~= base .. ':attrs'
  or DEAD ~= base .. ':dead' or RECENT ~= base .. ':recent' or NODES ~= base .. ':nodes' then
  return redis.error_reply('BADKEYS give the ten keys of one queue, in their order: dueq:{NAME}:scheduled, ready, '
    .. 'leases, claims, messages, attrs, dead, recent, nodes, meta')
end
local layout, incarnation, seq, paused, test =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq')
end
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
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0}
end
local function parse_attrs(text) -- failures, crashes, original due or nil, options, last error
  local failures, crashes, due, options, reason = string.match(text or '', '^(%d+) (%d+) ([%d-]+) ([^\n]*)\n(.*)$')
  return tonumber(failures or 0), tonumber(crashes or 0), tonumber(due), options or '', reason or ''
end
local function attrs_of(id) return parse_attrs(redis.call('HGET', ATTRS, id)) end
local function set_attrs(id, failures, crashes, due, options, reason)
  if failures + crashes == 0 and not due and options == '' and reason == '' then
    return redis.call('HDEL', ATTRS, id)
  end
  local counts = int(failures) .. ' ' .. int(crashes) .. ' ' .. (due and int(due) or '-')
  redis.call('HSET', ATTRS, id, counts .. ' ' .. options .. '\n' .. reason)
end
-- A claim has one lease for everything that it granted. First bytes of its names, before the token: LEASE_MARK of the
-- lease in LEASES and of the granted ids in CLAIMS; COUNT_MARK of the number of ids still under the lease, in CLAIMS.
local LEASE_MARK, COUNT_MARK = '\1', '\2'
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
-- Returns GONE or LOST; or nil, the id's value in CLAIMS and its original due time, if this token holds it.
local function refusal_of(id, token)
  local claim = redis.call('HGET', CLAIMS, id)
  if claim and #token == 16 and string.sub(claim, 1, 16) == token then
    return nil, claim, tonumber(string.match(claim, '^%d+', 17)) or 0
  end
  return redis.call('HEXISTS', MESSAGES, id) == 1 and 'LOST' or 'GONE'
end
local function end_lease(id, claim)
  redis.call('HDEL', CLAIMS, id)
  if has_own_lease(claim) then
    redis.call('ZREM', LEASES, id)
  else
    release_from_claim(string.sub(claim, 1, 16), 1)
  end
end
local count = (#ARGV - 1) / 3
if count < 1 or count > 1000 or count % 1 ~= 0 then
  return redis.error_reply('BADARGS bury takes now, then id, token, reason for 1 to 1000 deliveries')
end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES); redis.call('ZCARD', DEAD)
local replies, changed = {}, 0
for i = 1, count do
  local id = ARGV[3 * i - 1]
  local refusal, claim = refusal_of(id, ARGV[3 * i])
  if refusal then
    replies[i] = refusal
  else
    local failures, crashes, _, options = attrs_of(id)
    end_lease(id, claim)
    set_attrs(id, failures, crashes, nil, options, string.sub(ARGV[3 * i + 1], 1, 1024))
    redis.call('ZADD', DEAD, now, id)
    replies[i], changed = 'OK', changed + 1
  end
end
if changed > 0 then
  redis.call('HINCRBY', META, 'died', changed)
end
return {finish(changed > 0), replies}
#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/cancel.lua and lua/blocks: change these, not this file.
-- cancel: removes waiting messages (scheduled or ready -> absent), and dead ones if asked. After CANCELLED no claim
--         grants the message.
-- KEYS   the ten of the queue
-- ARGV   now | dead: 1 to cancel dead messages too, else empty; a repetition adds since=MS, the server's time at the
--        first call | 1 to 1,000 ids
-- Reply  {header, {CANCELLED | CANCELLED earlier | LEASED | DEAD | ABSENT, ...}}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log n) an id; one scan of the ready list if one is ready
-- Again  CANCELLED for 12 s; with since, a message pushed under the id meanwhile stays

local SCHEDULED, READY, LEASES, CLAIMS, MESSAGES, ATTRS, DEAD, RECENT, NODES, META = unpack(KEYS)
local base, queue, slash, partition = string.match(META or '', '^(dueq:{([^{}/%c]+)(/?)(%d*)}):meta$')
if #KEYS ~= 10 or not base or #queue > 128 or #slash > #partition
  or SCHEDULED ~= base .. ':scheduled' or READY ~= base .. ':ready' or LEASES ~= base .. ':leases'
  or CLAIMS ~= base .. ':claims' or MESSAGES ~= base .. ':messages' or ATTRS ~= base .. ':attrs'
  or DEAD ~= base .. ':dead' or RECENT ~= base .. ':recent' or NODES ~= base .. ':nodes' then
  return redis.error_reply('BADKEYS give the ten keys of one queue, in their order: dueq:{NAME}:scheduled, ready, '
    .. 'leases, claims, messages, attrs, dead, recent, nodes, meta')
end
local layout, incarnation, seq, paused, test =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq')
end
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
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0}
end
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
-- RECENT remembers, each until its score:
--   an id + CANCELLED or PUSHED_AGAIN   it was cancelled or purged; PUSHED_AGAIN: and pushed again since then
--   CALL_MARK attempt                   this call of push was made; + PARTLY: of its items only those below count
--   CALL_MARK attempt ' ' id            such an item
--   ENDED_MARK id                       the message ended or moved near its due; the score is that time + REPEAT_MS
-- The fractions are part of the score. META's ended_until is the latest score of ENDED_MARK, rounded up.
local CALL_MARK, ENDED_MARK = '\3', '\4'
local CANCELLED, PUSHED_AGAIN, PARTLY = 0.5, 0.25, 0.5
local function trim_recent(count) -- removes at most `count` names of RECENT whose time is over
  local over = math.min(redis.call('ZCOUNT', RECENT, '-inf', now), count)
  if over > 0 then
    redis.call('ZREMRANGEBYRANK', RECENT, 0, over - 1)
  end
end
local memory, memory_ms = {}, string.format('%.3f', now_us / 1000 + REPEAT_MS)
local function remember(score, name)
  memory[#memory + 1] = score
  memory[#memory + 1] = name
end
local function remember_end(id) remember(memory_ms, ENDED_MARK .. id) end
local function write_memory()
  if #memory == 0 then return end
  local latest = redis.call('HGET', META, 'ended_until') or '0'
  local later = string.find(latest, '^%d+$') and now_up + REPEAT_MS + 1 - tonumber(latest) or 0
  redis.call('ZADD', RECENT, unpack(memory))
  if later > 0 then
    redis.call('HINCRBY', META, 'ended_until', int(later))
  end
  trim_recent(#memory)
end
local dead, since = ARGV[2], nil
if dead ~= '' and dead ~= '1' then
  dead, since = string.match(dead or '', '^(1?) ?since=(%d+)$')
end
if #ARGV < 3 or #ARGV > 1002 or not dead then
  return redis.error_reply(
    'BADARGS cancel takes now, dead (1 or empty; in a repetition also since=MS), then 1 to 1000 ids')
end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES)
redis.call('ZCARD', DEAD); redis.call('ZCARD', RECENT)
local replies, gone, unlisted, cancelled = {}, 0, {}, {}
local function remembered(id, fraction) -- the score, if RECENT holds the id with this fraction
  local recent = tonumber(redis.call('ZSCORE', RECENT, id) or 0)
  return recent > now and recent <= now_up + REPEAT_MS + 1 and recent % 1 == fraction and recent
end
local function cancelled_earlier(id) -- whether the id was cancelled since the first call, and pushed again
  local recent = remembered(id, PUSHED_AGAIN)
  return recent and math.floor(recent) - REPEAT_MS >= tonumber(since)
end
for i = 3, #ARGV do
  local id = ARGV[i]
  local state = state_of(id)
  if since and cancelled_earlier(id) then
    replies[#replies + 1] = 'CANCELLED earlier'
  elseif state == 'leased' or state == 'dead' and dead == '' then
    replies[#replies + 1] = string.upper(state)
  elseif state == 'absent' then
    replies[#replies + 1] = (cancelled[id] or remembered(id, CANCELLED)) and 'CANCELLED' or 'ABSENT'
  else
    if state == 'scheduled' then
      redis.call('ZREM', SCHEDULED, id)
    elseif state == 'ready' then
      unlisted[ready_entry(id) or ''] = true
    else
      redis.call('ZREM', DEAD, id)
    end
    redis.call('HDEL', MESSAGES, id)
    redis.call('HDEL', ATTRS, id)
    remember(string.format('%.2f', now_up + REPEAT_MS + CANCELLED), id)
    remember_end(id)
    gone, cancelled[id] = gone + 1, true
    replies[#replies + 1] = 'CANCELLED'
  end
end
if gone > 0 then
  remove_ready(unlisted)
  write_memory()
  redis.call('HINCRBY', META, 'cancelled', gone)
end
return {finish(gone > 0), replies}
#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/claim.lua and lua/blocks: change these, not this file.
-- claim: leases messages to a node (ready, or scheduled and due -> leased): n of them, or the node's fair share if that
--        is less. The share is what there is to take / live nodes, and at least one.
-- KEYS   the ten of the queue
-- ARGV   now | n: free handlers, 0 to 1,000; 0 only fills the wake-up list
--        | token: 16 random bytes, new for each call | lease: 1 to 86,400,000 ms
-- Reply  {header, ready messages left, lease deadline ms, {id, ...}, {payload, ...}, {details, ...}}
--        details: '<due ms> <attempt> <options>'; one element alone if all share it. At most 4 MiB of payload, or one
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(granted + log n + bytes)
-- Again  grants others; what the lost reply granted comes back when its lease runs out

local SCHEDULED, READY, LEASES, CLAIMS, MESSAGES, ATTRS, DEAD, RECENT, NODES, META = unpack(KEYS)
local base, queue, slash, partition = string.match(META or '', '^(dueq:{([^{}/%c]+)(/?)(%d*)}):meta$')
if #KEYS ~= 10 or not base or #queue > 128 or #slash > #partition
  or SCHEDULED ~= base .. ':scheduled' or READY ~= base .. ':ready' or LEASES ~= base .. ':leases'
  or CLAIMS ~= base .. ':claims' or MESSAGES ~= base .. ':messages' or ATTRS ~= base .. ':attrs'
  or DEAD ~= base .. ':dead' or RECENT ~= base .. ':recent' or NODES ~= base .. ':nodes' then
  return redis.error_reply('BADKEYS give the ten keys of one queue, in their order: dueq:{NAME}:scheduled, ready, '
    .. 'leases, claims, messages, attrs, dead, recent, nodes, meta')
end
local layout, incarnation, seq, paused, test =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq')
end
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
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0}
end
-- A claim has one lease for everything that it granted. First bytes of its names, before the token: LEASE_MARK of the
-- lease in LEASES and of the granted ids in CLAIMS; COUNT_MARK of the number of ids still under the lease, in CLAIMS.
local LEASE_MARK, COUNT_MARK = '\1', '\2'
-- count, share        how many handlers are free; how many messages this node may have
-- ready, due          how many messages are in READY; how many are due in SCHEDULED
-- ids, dues           candidates, first those of READY; their dues in runs, as read_due returns them
-- listed, taken       how many of ids are of READY; how many were looked at
-- granted, payloads   ids and payloads of the grant; n: how many. `granted` is the same table as `ids`: each entry is
--                     written at or behind the read position
-- details, shared     details of each, once they differ; the details that all share until then
-- claims, c           field, value, ... for CLAIMS; how many elements these are
-- bytes, largest      payload bytes granted; the most that one payload may have
-- read_attrs          nil if no message has attrs
-- run, last           index of the next run in dues; index of the present run's last id
-- due, claim, fresh   of the present run: due; what CLAIMS gets; details of a first attempt
-- alike               true if the next message can be granted just as the one before it
local count, token, lease_ms = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
if #ARGV ~= 4 or not count or count < 0 or count > 1000 or count % 1 ~= 0 or #token ~= 16
  or not lease_ms or lease_ms < 1 or lease_ms > 86400000 or lease_ms % 1 ~= 0 then
  return redis.error_reply('BADARGS claim takes now, n (0 to 1000), token (16 bytes), lease ms (1 to 86400000)')
end
local ready, nodes, due = math.max(0, old_length - 1), redis.call('ZCOUNT', NODES, now - 3000, '(inf'), 0
if old_head <= now then
  due = math.max(0, math.min(redis.call('ZCOUNT', SCHEDULED, '-inf', now), 1000 - ready))
end
local share = math.min(count, math.max(1, math.floor((ready + due) / math.max(1, nodes))))
if paused or ready + due < 1 or count == 0 then return {finish(false), ready, -1, {}, {}, {}} end
local read_attrs
if redis.call('HLEN', ATTRS) > 1 then -- making functions costs as much as a command
  local function parse_attrs(text) -- failures, crashes, original due or nil, options, last error
    local failures, crashes, due, options, reason = string.match(text or '', '^(%d+) (%d+) ([%d-]+) ([^\n]*)\n(.*)$')
    return tonumber(failures or 0), tonumber(crashes or 0), tonumber(due), options or '', reason or ''
  end
  local function attrs_of(id) return parse_attrs(redis.call('HGET', ATTRS, id)) end
  local function set_attrs(id, failures, crashes, due, options, reason)
    if failures + crashes == 0 and not due and options == '' and reason == '' then
      return redis.call('HDEL', ATTRS, id)
    end
    local counts = int(failures) .. ' ' .. int(crashes) .. ' ' .. (due and int(due) or '-')
    redis.call('HSET', ATTRS, id, counts .. ' ' .. options .. '\n' .. reason)
  end
  read_attrs = parse_attrs
end
if redis.call('HEXISTS', CLAIMS, LEASE_MARK .. token) == 1 then
  return redis.error_reply('BADARGS the token is that of a claim whose lease lasts: it must be new for each call')
end

-- Ready messages first: they were promoted earlier.
local ids, dues, listed = {}, {}, math.min(share, ready)
if share > listed then
  -- Reads the first `room` due messages of SCHEDULED; there must be one. Returns their ids, and their dues as runs of
  -- equal dues: due, index of the run's last id, due, index, ...
  local function read_due(room)
    local ids, dues, r = redis.call('ZRANGE', SCHEDULED, '-inf', now, 'BYSCORE', 'LIMIT', '0', room), {}, 0
    -- ZMSCORE and not ZSCORE: consumers have no right to ZSCORE, so that the scripts of producers are refused to them.
    local last = tonumber(redis.call('ZMSCORE', SCHEDULED, ids[#ids])[1])
    -- Reading a score costs more than all else here. Where dues are dense, one ZCOUNT for each ms costs less. Beyond 9e15
    -- a number plus one may be the same number.
    if old_head >= 0 and last < 9e15 and (last - old_head + 1) * 2.5 <= #ids then
      local n, due, text = 0, math.floor(old_head), int(math.floor(old_head))
      while n < #ids do
        local after = int(due + 1)
        local same = due >= math.floor(last) and #ids or n + redis.call('ZCOUNT', SCHEDULED, text, '(' .. after)
        if same > n then
          dues[r + 1], dues[r + 2], r, n = text, same, r + 2, same
        end
        due, text = due + 1, after
      end
    else
      local found = redis.call('ZRANGE', SCHEDULED, '0', #ids - 1, 'WITHSCORES')
      for i = 1, #ids do
        if found[2 * i] ~= dues[r - 1] then
          dues[r + 1], r = found[2 * i], r + 2
        end
        dues[r] = i
      end
    end
    return ids, dues
  end
  ids, dues = read_due(share - listed)
end
if listed > 0 then
  local later, later_dues, prefix, r = ids, dues, nil, 0
  ids, dues = {}, {}
  for i, entry in ipairs(redis.call('LRANGE', READY, '1', listed)) do
    if not prefix or string.find(entry, prefix, 1, true) ~= 1 then -- neighbours often share their due
      prefix, r = string.match(entry, '^%d+:'), r + 2
      dues[r - 1] = prefix and string.sub(prefix, 1, -2) or '0'
    end
    ids[i], dues[r] = prefix and string.sub(entry, #prefix + 1) or '', i
  end
  for i = 1, #later do
    ids[listed + i] = later[i]
  end
  for i = 1, #later_dues, 2 do
    dues[r + i], dues[r + i + 1] = later_dues[i], later_dues[i + 1] + listed
  end
end

-- No payload is read in vain: each HMGET reads as many as are sure to fit into the rest of 4 MiB. If that is none,
-- HSTRLEN reads the next payload's length first.
local granted, payloads, claims, details = ids, {unpack(ids)}, {unpack(ids)}, nil -- allocated in their final size
local n, c, bytes, taken, deadline = 0, 0, 0, 0, now_up + lease_ms
local largest = math.huge
if #ids > 1 then
  largest = tonumber(redis.call('HGET', META, 'largest_payload_bytes') or 4096) or 16777216
end
local run, last, due, claim, fresh, shared, alike = 1, 0
while taken < #ids and (taken == 0 or bytes < 4194304) do
  local from, to = taken + 1, math.min(#ids, taken + math.floor((4194304 - bytes) / largest))
  if to < from then
    if n > 0 and bytes + redis.call('HSTRLEN', MESSAGES, ids[from]) > 4194304 then break end
    to = from
  end
  local attrs = read_attrs and redis.call('HMGET', ATTRS, unpack(ids, from, to)) or {}
  local found = redis.call('HMGET', MESSAGES, unpack(ids, from, to))
  for i = 1, #found do
    local payload, at = found[i], taken + 1
    local id = ids[at]
    if at > last then -- the next run begins
      local text = dues[run]
      last, run, due, claim, fresh = dues[run + 1], run + 2, tonumber(text), token .. text, text .. ' 1 '
      if due < 0 or due % 1 ~= 0 then -- not written by dueq: clients must be able to parse it
        fresh = int(math.max(0, due)) .. ' 1 '
      end
      alike = not read_attrs and due <= now and n > 0 and (details or fresh == shared)
    end
    if payload and n > 0 and bytes + #payload > 4194304 then
      bytes = 4194304
      break
    end
    taken = at
    if payload and alike then -- the fast path: single assignments, for a multiple one goes through temporaries
      n = n + 1
      c = c + 2
      if n < at then
        granted[n] = id
      end
      payloads[n] = payload
      claims[c - 1] = id
      claims[c] = claim
      if details then
        details[n] = fresh
      end
      bytes = bytes + #payload
    elseif payload and due > now then -- the clock went back: the message is not due yet
      redis.call('ZADD', SCHEDULED, due, id)
    elseif payload then -- without a payload there is no message: the entry is dropped
      local held, detail = claim, fresh
      if attrs[i] then
        local failures, crashes, original, options = read_attrs(attrs[i])
        if original then
          held = token .. int(original)
        end
        detail = int(original or math.max(0, due)) .. ' ' .. int(failures + crashes + 1) .. ' ' .. options
      end
      n, c, alike = n + 1, c + 2, not read_attrs
      granted[n], payloads[n], claims[c - 1], claims[c] = id, payload, id, held
      if n == 1 then
        shared = detail
      elseif not details and detail ~= shared then
        details = {}
        for k = 1, n - 1 do
          details[k] = shared
        end
      end
      if details then
        details[n] = detail
      end
      bytes = bytes + #payload
    end
  end
end

for i = #ids, n + 1, -1 do -- candidates that were not granted
  granted[i], payloads[i] = nil, nil
end
local unlisted = math.min(taken, listed)
if unlisted > 0 then
  -- The last entry taken becomes the placeholder: the list is never empty, not even within the script.
  local placeholder = redis.call('LINDEX', READY, '0')
  redis.call('LTRIM', READY, unlisted, '-1')
  redis.call('LSET', READY, '0', placeholder)
end
if taken > unlisted then
  redis.call('ZREMRANGEBYRANK', SCHEDULED, '0', taken - unlisted - 1)
end
if n > 0 then
  claims[c + 1], claims[c + 2] = LEASE_MARK .. token, table.concat(granted, '\n') -- ids have no control bytes
  claims[c + 3], claims[c + 4] = COUNT_MARK .. token, n
  redis.call('HSET', CLAIMS, unpack(claims, 1, c + 4))
  redis.call('ZADD', LEASES, deadline, LEASE_MARK .. token)
  redis.call('HINCRBY', META, 'claimed', n)
end
local first_deadline = n > 0 and math.min(old_deadline, deadline) or old_deadline
local header = finish(true, false, nil, first_deadline, old_length - unlisted)
-- As after a promote: standbys learn that the due messages were taken, and need not promote.
local head = header[4]
if taken > unlisted and (head == -1 or head - now > 25) then
  redis.pcall('SPUBLISH', base .. ':notice', head == -1 and '' or int(head))
end
return {header, ready - unlisted, deadline, granted, payloads, details or {shared}}
#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/configure.lua and lua/blocks: change these, not this file.
-- configure: sets limits of the queue. A limit that is not named stays as it is.
-- KEYS   the ten of the queue; configure makes them if they do not exist
-- ARGV   now | name, value pairs (default in brackets):
--        max_attempts 1 to 1,000,000 (20); max_crashes 0 to 1,000,000 (5);
--        max_messages 1 to 10^15, empty for none (none); max_payload_bytes 1 to 16,777,216 (1,048,576);
--        dead_keep_ms 1 to 3,155,760,000,000 (30 days);
--        dead_keep 1 to 10^15 (100,000)
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
local layout, incarnation, seq, paused, test =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq')
end
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
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0}
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
end
local most = {max_attempts = 1000000, max_crashes = 1000000, max_messages = 1e15, max_payload_bytes = 16777216,
  dead_keep_ms = 3155760000000, dead_keep = 1e15}
if #ARGV < 3 or #ARGV % 2 == 0 then
  return redis.error_reply('BADARGS configure takes now, then pairs of name and value')
end
for i = 2, #ARGV, 2 do
  local name, value = ARGV[i], ARGV[i + 1]
  local number = string.find(value, '^%d+$') and tonumber(value)
  local least = name == 'max_crashes' and 0 or 1
  if not most[name] then
    return redis.error_reply('BADARGS configure knows max_attempts, max_crashes, max_messages, max_payload_bytes, '
      .. 'dead_keep_ms, dead_keep')
  end
  if not (name == 'max_messages' and value == '') and not (number and number >= least and number <= most[name]) then
    return redis.error_reply('BADARGS ' .. name .. ' must be ' .. least .. ' to ' .. int(most[name]))
  end
end
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
create()
for i = 2, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', META, ARGV[i])
  else
    redis.call('HSET', META, ARGV[i], ARGV[i + 1])
  end
end
return {finish(true), 'OK'}
#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/extend.lua and lua/blocks: change these, not this file.
-- extend: sets a delivery's deadline to now + lease, never earlier than it was, and gives it a lease of its own.
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
local layout, incarnation, seq, paused, test =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq')
end
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
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0}
end
-- A claim has one lease for everything that it granted. First bytes of its names, before the token: LEASE_MARK of the
-- lease in LEASES and of the granted ids in CLAIMS; COUNT_MARK of the number of ids still under the lease, in CLAIMS.
local LEASE_MARK, COUNT_MARK = '\1', '\2'
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
-- Returns GONE or LOST; or nil, the id's value in CLAIMS and its original due time, if this token holds it.
local function refusal_of(id, token)
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
      redis.call('HSET', CLAIMS, id, claim .. '+')
      release_from_claim(string.sub(claim, 1, 16), 1)
    end
    redis.call('ZADD', LEASES, deadline, id)
    replies[i], changed = 'OK ' .. int(deadline), changed + 1
  end
end
return {finish(changed > 0), replies}
#!lua flags=no-writes
-- Made by scripts/lua-dist from lua/get.lua and lua/blocks: change these, not this file.
-- get: returns one message, whatever its state.
-- KEYS   the ten of the queue
-- ARGV   now | id
-- Reply  {header, {state, s, time_ms, t, failures, n, crashes, n, options, words, error, text, payload, bytes}};
--        {header, {}} if there is no such message
--        time_ms: the due of a scheduled or ready message, the lease deadline of a leased one, when a dead one died
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE
-- Cost   O(log n); one scan of the ready list if it is ready
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
local layout, incarnation, seq, paused, test =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq')
end
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
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0}
end
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
local function parse_attrs(text) -- failures, crashes, original due or nil, options, last error
  local failures, crashes, due, options, reason = string.match(text or '', '^(%d+) (%d+) ([%d-]+) ([^\n]*)\n(.*)$')
  return tonumber(failures or 0), tonumber(crashes or 0), tonumber(due), options or '', reason or ''
end
local function attrs_of(id) return parse_attrs(redis.call('HGET', ATTRS, id)) end
local function set_attrs(id, failures, crashes, due, options, reason)
  if failures + crashes == 0 and not due and options == '' and reason == '' then
    return redis.call('HDEL', ATTRS, id)
  end
  local counts = int(failures) .. ' ' .. int(crashes) .. ' ' .. (due and int(due) or '-')
  redis.call('HSET', ATTRS, id, counts .. ' ' .. options .. '\n' .. reason)
end
-- A claim has one lease for everything that it granted. First bytes of its names, before the token: LEASE_MARK of the
-- lease in LEASES and of the granted ids in CLAIMS; COUNT_MARK of the number of ids still under the lease, in CLAIMS.
local LEASE_MARK, COUNT_MARK = '\1', '\2'
-- Extend gives an id a lease of its own. A + at the end of the id's claim says so.
local function has_own_lease(claim) return string.byte(claim, -1) == 43 end
local function lease_member(id, claim) -- the member of LEASES that holds this id
  return has_own_lease(claim) and id or LEASE_MARK .. string.sub(claim, 1, 16)
end
if #ARGV ~= 2 then return redis.error_reply('BADARGS get takes now, id') end
local id = ARGV[2]
local state = state_of(id)
if state == 'absent' then return {finish(false, true), {}} end
local time
if state == 'ready' then
  time = string.match(ready_entry(id) or '0:', '^%d+')
elseif state == 'leased' then
  time = redis.call('ZSCORE', LEASES, lease_member(id, redis.call('HGET', CLAIMS, id)))
else
  time = redis.call('ZSCORE', state == 'scheduled' and SCHEDULED or DEAD, id)
end
local failures, crashes, _, options, reason = attrs_of(id)
return {finish(false, true), {'state', state, 'time_ms', tonumber(time or 0), 'failures', failures, 'crashes', crashes,
  'options', options, 'error', reason, 'payload', redis.call('HGET', MESSAGES, id) or ''}}
#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/pause.lua and lua/blocks: change these, not this file.
-- pause: stops promotes, claims and wake-ups of the queue. Pushes, settlements and reaps go on.
-- KEYS   the ten of the queue; pause makes them if they do not exist
-- ARGV   now
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
local layout, incarnation, seq, paused, test =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq')
end
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
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0}
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
end
if #ARGV ~= 1 then return redis.error_reply('BADARGS pause takes now') end
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
create()
local changed = not paused
paused = '1'
if changed then
  redis.call('HSET', META, 'paused', paused)
end
return {finish(changed), 'OK'}
#!lua flags=no-writes
-- Made by scripts/lua-dist from lua/peek.lua and lua/blocks: change these, not this file.
-- peek: returns a page of the messages in one state, in the order of time_ms (as in get).
-- KEYS   the ten of the queue
-- ARGV   now | state: scheduled, ready, leased or dead | cursor: empty for the first page, then as replied
--        | limit: 1 to 1,000
-- Reply  {header, next cursor or empty at the end, {{id, time_ms, failures, crashes, error}, ...}}
--        Between two pages, a message that enters or leaves may be missing; one that moves may be returned twice.
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE
-- Cost   O(log n + limit); of leased messages it looks at 11,000 granted ids at most: then the page is shorter
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
local layout, incarnation, seq, paused, test =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq')
end
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
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0}
end
local function parse_attrs(text) -- failures, crashes, original due or nil, options, last error
  local failures, crashes, due, options, reason = string.match(text or '', '^(%d+) (%d+) ([%d-]+) ([^\n]*)\n(.*)$')
  return tonumber(failures or 0), tonumber(crashes or 0), tonumber(due), options or '', reason or ''
end
local function attrs_of(id) return parse_attrs(redis.call('HGET', ATTRS, id)) end
local function set_attrs(id, failures, crashes, due, options, reason)
  if failures + crashes == 0 and not due and options == '' and reason == '' then
    return redis.call('HDEL', ATTRS, id)
  end
  local counts = int(failures) .. ' ' .. int(crashes) .. ' ' .. (due and int(due) or '-')
  redis.call('HSET', ATTRS, id, counts .. ' ' .. options .. '\n' .. reason)
end
-- A claim has one lease for everything that it granted. First bytes of its names, before the token: LEASE_MARK of the
-- lease in LEASES and of the granted ids in CLAIMS; COUNT_MARK of the number of ids still under the lease, in CLAIMS.
local LEASE_MARK, COUNT_MARK = '\1', '\2'
-- Extend gives an id a lease of its own. A + at the end of the id's claim says so.
local function has_own_lease(claim) return string.byte(claim, -1) == 43 end
local function lease_member(id, claim) -- the member of LEASES that holds this id
  return has_own_lease(claim) and id or LEASE_MARK .. string.sub(claim, 1, 16)
end
local state, cursor, limit = ARGV[2], ARGV[3], tonumber(ARGV[4])
local zset = ({scheduled = SCHEDULED, dead = DEAD})[state or '']
local time, last = string.match(cursor or '', '^(%d+):(.*)$')
if #ARGV ~= 4 or not (zset or state == 'ready' or state == 'leased') or not (cursor == '' or time)
  or not limit or limit < 1 or limit > 1000 or limit % 1 ~= 0 then
  return redis.error_reply('BADARGS peek takes now, state (scheduled, ready, leased or dead), cursor (as replied, or '
    .. 'empty), limit (1 to 1000)')
end
local items, start, looked, more = {}, 0, 0, false
local function add(id, at)
  local failures, crashes, _, _, reason = attrs_of(id)
  items[#items + 1] = {id, tonumber(at), failures, crashes, reason}
end
local function page_start(zset, member) -- rank of this member, or if it has moved, of the time that it had
  if not time then return 0, false end
  local same = tonumber(redis.call('ZSCORE', zset, member) or -1) == tonumber(time)
  return same and redis.call('ZRANK', zset, member) or redis.call('ZCOUNT', zset, '-inf', '(' .. time), same
end
local function add_claim(token, at, after) -- the ids under the claim's lease, in the order in which it granted them
  for id in string.gmatch(redis.call('HGET', CLAIMS, LEASE_MARK .. token) or '', '[^\n]+') do
    looked = looked + 1
    local claim = not after and #items < limit and redis.call('HGET', CLAIMS, id)
    if claim and string.find(claim, token, 1, true) == 1 and not has_own_lease(claim) then
      add(id, at)
    end
    if id == after then
      after = nil
    end
  end
end
if state == 'leased' then
  local same
  start, same = page_start(LEASES, lease_member(last or '', time and redis.call('HGET', CLAIMS, last) or '+'))
  local page = redis.call('ZRANGE', LEASES, start, start + limit, 'WITHSCORES')
  for i = 1, #page, 2 do
    local member, at, after = page[i], page[i + 1], same and i == 1 and last or nil
    -- A claim may hold few of the ids that it granted. The page ends early, so that no call looks at too many.
    more = #items == limit or #items > 0 and looked >= 10000
    if more or at == 'inf' then break end
    if string.sub(member, 1, 1) == LEASE_MARK then
      add_claim(string.sub(member, 2), at, after)
    elseif member ~= after then
      add(member, at)
    end
  end
  cursor = (more or #items == limit) and int(items[#items][2]) .. ':' .. items[#items][1] or ''
elseif zset then
  local same
  start, same = page_start(zset, last)
  if same then
    start = start + 1
  end
  local page = redis.call('ZRANGE', zset, start, start + limit - 1, 'WITHSCORES')
  for i = 1, #page, 2 do
    if page[i + 1] ~= 'inf' then
      add(page[i], page[i + 1])
    end
  end
  cursor = #items == limit and int(items[limit][2]) .. ':' .. items[limit][1] or ''
else
  start = time and tonumber(time) or 1
  for _, found in ipairs(redis.call('LRANGE', READY, start, start + limit - 1)) do
    local at, id = string.match(found, '^(%d+):(.*)$')
    if id then
      add(id, at)
    end
  end
  cursor = #items == limit and int(start + limit) .. ':' or ''
end
return {finish(false, true), cursor, items}
#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/promote.lua and lua/blocks: change these, not this file.
-- promote: moves due messages to the ready list (scheduled -> ready), in due order, up to the ready limit of 1,000.
-- KEYS   the ten of the queue
-- ARGV   now | limit: 1 to 1,000
-- Reply  {header, moved}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log n + moved)
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
local layout, incarnation, seq, paused, test =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq')
end
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
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0}
end
-- Reads the first `room` due messages of SCHEDULED; there must be one. Returns their ids, and their dues as runs of
-- equal dues: due, index of the run's last id, due, index, ...
local function read_due(room)
  local ids, dues, r = redis.call('ZRANGE', SCHEDULED, '-inf', now, 'BYSCORE', 'LIMIT', '0', room), {}, 0
  -- ZMSCORE and not ZSCORE: consumers have no right to ZSCORE, so that the scripts of producers are refused to them.
  local last = tonumber(redis.call('ZMSCORE', SCHEDULED, ids[#ids])[1])
  -- Reading a score costs more than all else here. Where dues are dense, one ZCOUNT for each ms costs less. Beyond 9e15
  -- a number plus one may be the same number.
  if old_head >= 0 and last < 9e15 and (last - old_head + 1) * 2.5 <= #ids then
    local n, due, text = 0, math.floor(old_head), int(math.floor(old_head))
    while n < #ids do
      local after = int(due + 1)
      local same = due >= math.floor(last) and #ids or n + redis.call('ZCOUNT', SCHEDULED, text, '(' .. after)
      if same > n then
        dues[r + 1], dues[r + 2], r, n = text, same, r + 2, same
      end
      due, text = due + 1, after
    end
  else
    local found = redis.call('ZRANGE', SCHEDULED, '0', #ids - 1, 'WITHSCORES')
    for i = 1, #ids do
      if found[2 * i] ~= dues[r - 1] then
        dues[r + 1], r = found[2 * i], r + 2
      end
      dues[r] = i
    end
  end
  return ids, dues
end
local limit = tonumber(ARGV[2])
if #ARGV ~= 2 or not limit or limit < 1 or limit > 1000 or limit % 1 ~= 0 then
  return redis.error_reply('BADARGS promote takes now, limit (1 to 1000)')
end
local room = math.min(limit, 1001 - old_length)
if not layout or paused or old_head > now or room < 1 then return {finish(false), 0} end
local entries, dues = read_due(room)
local from = 1
for run = 1, #dues, 2 do
  local prefix = dues[run] .. ':'
  for i = from, dues[run + 1] do
    entries[i] = prefix .. entries[i]
  end
  from = dues[run + 1] + 1
end
redis.call('RPUSH', READY, unpack(entries))
redis.call('ZREMRANGEBYRANK', SCHEDULED, '0', #entries - 1)
-- Standbys learn that the due messages were promoted, and need not do so. Where dues are less than 25 ms apart, one
-- notice serves for many promotes.
local head = first_score(SCHEDULED)
if head - now > 25 then
  redis.pcall('SPUBLISH', base .. ':notice', head < math.huge and int(head) or '')
end
return {finish(true, false, head, old_deadline, old_length + #entries), #entries}
#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/purge.lua and lua/blocks: change these, not this file.
-- purge: removes messages of one state (scheduled, ready or dead -> absent), a bounded step at a time.
-- KEYS   the ten of the queue
-- ARGV   now | state: scheduled, ready or dead | limit: 1 to 1,000
-- Reply  {header, purged, left in that state}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(limit log n)
-- Again  takes the rest

local SCHEDULED, READY, LEASES, CLAIMS, MESSAGES, ATTRS, DEAD, RECENT, NODES, META = unpack(KEYS)
local base, queue, slash, partition = string.match(META or '', '^(dueq:{([^{}/%c]+)(/?)(%d*)}):meta$')
if #KEYS ~= 10 or not base or #queue > 128 or #slash > #partition
  or SCHEDULED ~= base .. ':scheduled' or READY ~= base .. ':ready' or LEASES ~= base .. ':leases'
  or CLAIMS ~= base .. ':claims' or MESSAGES ~= base .. ':messages' or ATTRS ~= base .. ':attrs'
  or DEAD ~= base .. ':dead' or RECENT ~= base .. ':recent' or NODES ~= base .. ':nodes' then
  return redis.error_reply('BADKEYS give the ten keys of one queue, in their order: dueq:{NAME}:scheduled, ready, '
    .. 'leases, claims, messages, attrs, dead, recent, nodes, meta')
end
local layout, incarnation, seq, paused, test =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq')
end
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
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0}
end
-- RECENT remembers, each until its score:
--   an id + CANCELLED or PUSHED_AGAIN   it was cancelled or purged; PUSHED_AGAIN: and pushed again since then
--   CALL_MARK attempt                   this call of push was made; + PARTLY: of its items only those below count
--   CALL_MARK attempt ' ' id            such an item
--   ENDED_MARK id                       the message ended or moved near its due; the score is that time + REPEAT_MS
-- The fractions are part of the score. META's ended_until is the latest score of ENDED_MARK, rounded up.
local CALL_MARK, ENDED_MARK = '\3', '\4'
local CANCELLED, PUSHED_AGAIN, PARTLY = 0.5, 0.25, 0.5
local function trim_recent(count) -- removes at most `count` names of RECENT whose time is over
  local over = math.min(redis.call('ZCOUNT', RECENT, '-inf', now), count)
  if over > 0 then
    redis.call('ZREMRANGEBYRANK', RECENT, 0, over - 1)
  end
end
local memory, memory_ms = {}, string.format('%.3f', now_us / 1000 + REPEAT_MS)
local function remember(score, name)
  memory[#memory + 1] = score
  memory[#memory + 1] = name
end
local function remember_end(id) remember(memory_ms, ENDED_MARK .. id) end
local function write_memory()
  if #memory == 0 then return end
  local latest = redis.call('HGET', META, 'ended_until') or '0'
  local later = string.find(latest, '^%d+$') and now_up + REPEAT_MS + 1 - tonumber(latest) or 0
  redis.call('ZADD', RECENT, unpack(memory))
  if later > 0 then
    redis.call('HINCRBY', META, 'ended_until', int(later))
  end
  trim_recent(#memory)
end
local state, limit = ARGV[2], tonumber(ARGV[3])
if #ARGV ~= 3 or not (state == 'scheduled' or state == 'ready' or state == 'dead')
  or not limit or limit < 1 or limit > 1000 or limit % 1 ~= 0 then
  return redis.error_reply('BADARGS purge takes now, state (scheduled, ready or dead), limit (1 to 1000)')
end
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES); redis.call('ZCARD', DEAD); redis.call('ZCARD', RECENT)
local ids, left = {}, 0
if state == 'ready' then
  for i, found in ipairs(redis.call('LRANGE', READY, 1, limit)) do
    ids[i] = string.match(found, '^%d+:(.*)$') or found
  end
  if #ids > 0 then
    local placeholder = redis.call('LINDEX', READY, 0)
    redis.call('LTRIM', READY, #ids, -1)
    redis.call('LSET', READY, 0, placeholder)
  end
  left = math.max(0, redis.call('LLEN', READY) - 1)
else
  local zset = state == 'dead' and DEAD or SCHEDULED
  ids = redis.call('ZRANGE', zset, '-inf', '(inf', 'BYSCORE', 'LIMIT', 0, limit)
  if #ids > 0 then
    redis.call('ZREMRANGEBYRANK', zset, 0, #ids - 1)
  end
  left = math.max(0, redis.call('ZCARD', zset) - 1)
end
if #ids > 0 then
  for _, id in ipairs(ids) do
    remember(string.format('%.2f', now_up + REPEAT_MS + CANCELLED), id)
    remember_end(id)
  end
  redis.call('HDEL', MESSAGES, unpack(ids))
  redis.call('HDEL', ATTRS, unpack(ids))
  write_memory()
  redis.call('HINCRBY', META, 'purged', #ids)
end
return {finish(#ids > 0), #ids, left}
#!lua
-- Made by scripts/lua-dist from lua/push.lua and lua/blocks: change these, not this file.
-- push: stores new messages (absent -> scheduled). A message that is in the queue stays as it is: `upsert` changes it.
-- KEYS   the ten of the queue; push makes them if they do not exist
-- ARGV   now | attempt: '<until> <nonce>', or empty | per message, 1 to 1,000: id, due, payload, options
--        until: server ms of the first try + 10,000: 13 digits, and perhaps a dot and 3 digits
--        nonce: 8 to 64 random bytes, new for each call; a repetition of the call sends the same attempt
--        due: unix ms, or +ms from now
--        options: words of max_attempts=N, on_conflict=keep, traceparent=00-...
-- Reply  {header, {CREATED | EXISTS <state> | FINISHED | FINISHED <ms> | EXPIRED | FULL <why> | INVALID <why>, ...}};
--        one CREATED alone if it is the result of all
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, OOM: nothing was written
-- Cost   O(log n) a message
-- Again  with the same attempt: EXISTS or FINISHED, and EXPIRED from until on

local SCHEDULED, READY, LEASES, CLAIMS, MESSAGES, ATTRS, DEAD, RECENT, NODES, META = unpack(KEYS)
local base, queue, slash, partition = string.match(META or '', '^(dueq:{([^{}/%c]+)(/?)(%d*)}):meta$')
if #KEYS ~= 10 or not base or #queue > 128 or #slash > #partition
  or SCHEDULED ~= base .. ':scheduled' or READY ~= base .. ':ready' or LEASES ~= base .. ':leases'
  or CLAIMS ~= base .. ':claims' or MESSAGES ~= base .. ':messages' or ATTRS ~= base .. ':attrs'
  or DEAD ~= base .. ':dead' or RECENT ~= base .. ':recent' or NODES ~= base .. ':nodes' then
  return redis.error_reply('BADKEYS give the ten keys of one queue, in their order: dueq:{NAME}:scheduled, ready, '
    .. 'leases, claims, messages, attrs, dead, recent, nodes, meta')
end
local layout, incarnation, seq, paused, test =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq')
end
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
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0}
end
-- RECENT remembers, each until its score:
--   an id + CANCELLED or PUSHED_AGAIN   it was cancelled or purged; PUSHED_AGAIN: and pushed again since then
--   CALL_MARK attempt                   this call of push was made; + PARTLY: of its items only those below count
--   CALL_MARK attempt ' ' id            such an item
--   ENDED_MARK id                       the message ended or moved near its due; the score is that time + REPEAT_MS
-- The fractions are part of the score. META's ended_until is the latest score of ENDED_MARK, rounded up.
local CALL_MARK, ENDED_MARK = '\3', '\4'
local CANCELLED, PUSHED_AGAIN, PARTLY = 0.5, 0.25, 0.5
-- Making a function costs as much as a command: functions that most calls do not need are made where they are needed.
local create_queue
if not layout then
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
  end
  create_queue = create
end
local function due_ms(text) -- '<unix ms>' or '+<delay ms>' as unix ms; nil for other text and beyond 100 years
  local ahead = string.byte(text) == 43
  if #text > (ahead and 16 or 15) or not string.find(text, '^%+?%d+$') then return nil end
  local due = tonumber(text) + (ahead and now_up or 0)
  return due <= now_up + 3155760000000 and due or nil
end
-- The request of push and upsert, and what both read before they judge it.
--   count, ids           how many messages; their ids
--   attempt              as given; until_text and until_ms: its first part
--   room, max_payload    limits of the queue; room: how many messages more it may hold
--   largest              META's largest_payload_bytes, at least 4,096
--   found[i]             true or the payload if message i is in the queue; else false
--   plain                true if no id has a control byte; false: look at each
--   ended[i], call_mark  what RECENT holds of id i and of this call, if it may matter
--   too_late             true if the attempt is past its until, or claims one too far ahead
local count, attempt = (#ARGV - 2) / 4, ARGV[2] or ''
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
local max_messages, max_payload, ended_until =
  unpack(redis.call('HMGET', META, 'max_messages', 'max_payload_bytes', 'ended_until'))
local room = max_messages and tonumber(max_messages) + 1 - redis.call('HLEN', MESSAGES) or math.huge
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
redis.call('HLEN', CLAIMS)
redis.call('HLEN', ATTRS)
redis.call('ZCARD', DEAD)
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
local too_late = until_ms and (until_ms <= now or until_ms > now + REPEAT_MS)
-- Results of the call:
--   replies, created     item results; how many messages are new
--   longest              the longest payload stored, or `largest`
--   payloads, dues       id, payload, ... for MESSAGES; score, id, ... for SCHEDULED
--   memory               score, name, ... for RECENT
--   remember_call        whether RECENT must remember the call as a whole
--   changed, head, length  for finish
local replies, created, longest, payloads, dues, memory, remember_call, changed, head, length
-- Fast path: every id is new and no message has options. ZADD NX finds an id that is given twice. Every other call
-- takes the plain path below.
local all_new, near, text, score = not call_mark and not too_late and count <= room, false
replies, created, longest, head, length = {'CREATED'}, count, largest, old_head, not create_queue and old_length or nil
if all_new then
  if count == 1 then
    payloads, dues = {0, 0}, {0, 0} -- allocated in their final size
  else
    payloads, dues = {unpack(ARGV, 1, 2 * count)}, {unpack(ARGV, 1, 2 * count)}
  end
  for i = 1, count do
    local at, j, id = 4 * i, 2 * i, ids[i]
    local payload = ARGV[at + 1]
    if ARGV[at] ~= text then -- neighbours often share their due
      local due = due_ms(ARGV[at])
      text, score = ARGV[at], due and (string.byte(ARGV[at]) == 43 and int(due) or ARGV[at])
      head, near = math.min(head, due or head), near or due and due - now <= REPEAT_MS
    end
    if #payload > longest then
      longest = #payload
    end
    if not score or found[i] or ended and ended[i] or ARGV[at + 2] ~= '' or #id < 1 or #id > 200
      or #payload > max_payload or not plain and string.find(id, '%c') then
      all_new = false
      break
    end
    payloads[j - 1], payloads[j], dues[j - 1], dues[j] = id, payload, score, id
  end
end
if all_new then
  if create_queue then
    create_queue()
  end
  redis.call('HSET', MESSAGES, unpack(payloads)) -- first, for a consumer has no right to it
  all_new = redis.call('ZADD', SCHEDULED, 'NX', unpack(dues)) == count
end
changed, remember_call = all_new, near
if not all_new then
  local move -- push moves no message
  local function state_of(id)
    if (string.byte(id) or 0) < 32 then return 'absent' end -- the placeholder or an entry of a claim, no message
    if redis.call('ZSCORE', SCHEDULED, id) then return 'scheduled' end
    if redis.call('HEXISTS', CLAIMS, id) == 1 then return 'leased' end
    if redis.call('ZSCORE', DEAD, id) then return 'dead' end
    return redis.call('HEXISTS', MESSAGES, id) == 1 and 'ready' or 'absent'
  end
  local function parse_attrs(text) -- failures, crashes, original due or nil, options, last error
    local failures, crashes, due, options, reason = string.match(text or '', '^(%d+) (%d+) ([%d-]+) ([^\n]*)\n(.*)$')
    return tonumber(failures or 0), tonumber(crashes or 0), tonumber(due), options or '', reason or ''
  end
  local function attrs_of(id) return parse_attrs(redis.call('HGET', ATTRS, id)) end
  local function set_attrs(id, failures, crashes, due, options, reason)
    if failures + crashes == 0 and not due and options == '' and reason == '' then
      return redis.call('HDEL', ATTRS, id)
    end
    local counts = int(failures) .. ' ' .. int(crashes) .. ' ' .. (due and int(due) or '-')
    redis.call('HSET', ATTRS, id, counts .. ' ' .. options .. '\n' .. reason)
  end
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
  local function read_options(text) -- on_conflict, and the words to store; nil if a word is unknown
    local on_conflict, limit, parent = 'keep', '', ''
    for word in string.gmatch(text, '[^ ]+') do
      local conflict, attempts = string.match(word, '^on_conflict=(%l+)$'), string.match(word, '^max_attempts=(%d+)$')
      local trace, span = string.match(word, '^traceparent=00%-([0-9a-f]+)%-([0-9a-f]+)%-[0-9a-f][0-9a-f]$')
      if conflict == 'keep' or conflict == 'reschedule' or conflict == 'replace' then
        on_conflict = conflict
      elseif attempts and tonumber(attempts) >= 1 and tonumber(attempts) <= 1000000 then
        limit = 'max_attempts=' .. int(tonumber(attempts))
      elseif trace and #trace == 32 and #span == 16 and string.find(trace, '[^0]') and string.find(span, '[^0]') then
        parent = word
      else
        return nil
      end
    end
    return on_conflict, limit .. (limit ~= '' and parent ~= '' and ' ' or '') .. parent
  end
  local function live(score)
    score = tonumber(score)
    return score and score > now and score <= now_up + REPEAT_MS + 1 and score
  end
  local function finished(i) -- FINISHED, if this call is a repetition and the message ended since its first try
    local repeated = call_mark and (call_mark % 1 == 0 or redis.call('ZSCORE', RECENT, call .. ' ' .. ids[i]))
    if repeated then return 'FINISHED' end
    local last = until_ms and ended and ended[i] and live(ended[i])
    -- Until is the first try + 10,000 ms, with a fraction. Half a microsecond allows for the rounding of scores.
    local first = until_ms and (tonumber(string.match(attempt, '^[%d.]+')) or until_ms) - 10000 + 0.0005
    return last and last - REPEAT_MS > first and 'FINISHED ' .. string.format('%.3f', last - REPEAT_MS)
  end
  local function invalid(id, due, payload, on_conflict)
    if #id < 1 or #id > 200 or not plain and string.find(id, '%c') then
      return 'INVALID id must be 1 to 200 bytes, none of them a control byte'
    elseif not due then
      return 'INVALID due must be unix ms, or + and a delay in ms, at most 100 years ahead'
    elseif #payload > max_payload then
      return 'INVALID payload has ' .. #payload .. ' bytes, the limit of this queue is ' .. int(max_payload)
    elseif not on_conflict then
      return 'INVALID option: one of max_attempts=1..1000000, on_conflict=keep|reschedule|replace, '
        .. 'traceparent=00-TRACE-SPAN-FLAGS'
    elseif move and on_conflict == 'keep' then
      return 'INVALID upsert takes on_conflict=reschedule or on_conflict=replace: use push to keep a message'
    elseif not move and on_conflict ~= 'keep' then
      return 'INVALID push takes no on_conflict=' .. on_conflict .. ': use upsert'
    end
  end
  local function one(i)
    local id, text, payload, words = ids[i], ARGV[4 * i], ARGV[4 * i + 1], ARGV[4 * i + 2]
    local due, on_conflict, stored = due_of[text], 'keep', ''
    if due == nil then
      due = due_ms(text) or false
      due_of[text], due_text[text] = due, due and (string.byte(text) == 43 and int(due) or text)
    end
    if words ~= '' then
      on_conflict, stored = read_options(words)
    end
    local refusal = invalid(id, due, payload, on_conflict) or too_late and 'EXPIRED'
    if refusal then return refusal end
    if found[i] or taken[id] then
      local state = taken[id] and 'scheduled' or state_of(id)
      if not move or state == 'leased' or state == 'dead' then
        noted[#noted + 1] = id
        return 'EXISTS ' .. state
      end
      move(id, state, due, payload, on_conflict == 'replace' and stored)
      d, dues[d + 1], dues[d + 2], taken[id] = d + 2, due_text[text], id, true
      return 'MOVED'
    end
    local earlier = finished(i)
    if earlier then return earlier end
    if created >= room then return 'FULL this queue may hold ' .. max_messages .. ' messages' end
    if ended and ended[i] then -- a repeated cancel of this id must not take the new message
      local cancelled = tonumber(redis.call('ZSCORE', RECENT, id) or 0)
      if cancelled > now and cancelled % 1 == CANCELLED then
        remember(string.format('%.2f', math.floor(cancelled) + PUSHED_AGAIN), id)
      end
    end
    p, payloads[p + 1], payloads[p + 2] = p + 2, id, payload
    d, dues[d + 1], dues[d + 2] = d + 2, due_text[text], id
    created, taken[id], options[id] = created + 1, true, stored ~= '' and stored or nil
    longest = math.max(longest, #payload)
    if due - now <= REPEAT_MS then
      noted[#noted + 1] = id
    end
    return 'CREATED'
  end
  for i = 1, count do
    replies[i] = one(i)
    call_mark_suffices = call_mark_suffices and (replies[i] == 'CREATED' or string.find(replies[i], '^EXISTS') ~= nil)
  end
  remember_call = call_mark_suffices and #noted > 0
  if until_ms and not call_mark_suffices and #noted > 0 and (not call_mark or call_mark % 1 > 0) then
    for _, id in ipairs(noted) do
      remember(until_text, call .. ' ' .. id)
    end
    remember(string.format('%.2f', until_ms + PARTLY), call)
  end
  changed = d > 0
  if changed then
    if create_queue then
      create_queue()
    end
    if p > 0 then
      redis.call('HSET', MESSAGES, unpack(payloads))
    end
    redis.call('ZADD', SCHEDULED, unpack(dues))
  end
  for id, stored in pairs(options) do
    set_attrs(id, 0, 0, nil, stored, '')
  end
end
memory = memory or {}
if remember_call and until_ms then
  memory[#memory + 1], memory[#memory + 2] = until_text, call
end
if #memory > 0 then
  local function trim_recent(count) -- removes at most `count` names of RECENT whose time is over
    local over = math.min(redis.call('ZCOUNT', RECENT, '-inf', now), count)
    if over > 0 then
      redis.call('ZREMRANGEBYRANK', RECENT, 0, over - 1)
    end
  end
  redis.call('ZADD', RECENT, unpack(memory))
  trim_recent(#memory)
end
if longest > largest then -- of all payloads that were ever stored, as a power of two: claim plans its reads by it
  local bytes = 4096
  while bytes < longest do
    bytes = 2 * bytes
  end
  redis.call('HINCRBY', META, 'largest_payload_bytes', int(bytes - (largest > 4096 and largest or 0)))
end
if created > 0 then
  redis.call('HINCRBY', META, 'pushed', created)
end
return {finish(changed, false, head, old_deadline, length), replies}
#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/reap.lua and lua/blocks: change these, not this file.
-- reap: takes back deliveries whose lease ran out (leased -> scheduled, crashes + 1; or dead beyond max_crashes, 5).
--       After its first crash a message is due at once; after crash c >= 2 in 2^(c-1) s times 0.5 to 1.5, so that a
--       message that kills its node does not take the same neighbours with it each time. Nothing is reaped before
--       META's reap_after, nor while no node has beaten for 3 s: after an outage live nodes extend first.
-- KEYS   the ten of the queue
-- ARGV   now | limit: 1 to 1,000
-- Reply  {header, reaped, of these dead}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log n) a delivery; it looks at about 10,000 granted ids at most
-- Again  takes the rest

local SCHEDULED, READY, LEASES, CLAIMS, MESSAGES, ATTRS, DEAD, RECENT, NODES, META = unpack(KEYS)
local base, queue, slash, partition = string.match(META or '', '^(dueq:{([^{}/%c]+)(/?)(%d*)}):meta$')
if #KEYS ~= 10 or not base or #queue > 128 or #slash > #partition
  or SCHEDULED ~= base .. ':scheduled' or READY ~= base .. ':ready' or LEASES ~= base .. ':leases'
  or CLAIMS ~= base .. ':claims' or MESSAGES ~= base .. ':messages' or ATTRS ~= base .. ':attrs'
  or DEAD ~= base .. ':dead' or RECENT ~= base .. ':recent' or NODES ~= base .. ':nodes' then
  return redis.error_reply('BADKEYS give the ten keys of one queue, in their order: dueq:{NAME}:scheduled, ready, '
    .. 'leases, claims, messages, attrs, dead, recent, nodes, meta')
end
local layout, incarnation, seq, paused, test =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq')
end
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
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0}
end
local function parse_attrs(text) -- failures, crashes, original due or nil, options, last error
  local failures, crashes, due, options, reason = string.match(text or '', '^(%d+) (%d+) ([%d-]+) ([^\n]*)\n(.*)$')
  return tonumber(failures or 0), tonumber(crashes or 0), tonumber(due), options or '', reason or ''
end
local function attrs_of(id) return parse_attrs(redis.call('HGET', ATTRS, id)) end
local function set_attrs(id, failures, crashes, due, options, reason)
  if failures + crashes == 0 and not due and options == '' and reason == '' then
    return redis.call('HDEL', ATTRS, id)
  end
  local counts = int(failures) .. ' ' .. int(crashes) .. ' ' .. (due and int(due) or '-')
  redis.call('HSET', ATTRS, id, counts .. ' ' .. options .. '\n' .. reason)
end
-- A claim has one lease for everything that it granted. First bytes of its names, before the token: LEASE_MARK of the
-- lease in LEASES and of the granted ids in CLAIMS; COUNT_MARK of the number of ids still under the lease, in CLAIMS.
local LEASE_MARK, COUNT_MARK = '\1', '\2'
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
local limit = tonumber(ARGV[2])
if #ARGV ~= 2 or not limit or limit < 1 or limit > 1000 or limit % 1 ~= 0 then
  return redis.error_reply('BADARGS reap takes now, limit (1 to 1000)')
end
local last_beat, reap_after, max_crashes = unpack(redis.call('HMGET', META, 'last_beat', 'reap_after', 'max_crashes'))
local silence = now - tonumber(last_beat or 0)
if not layout or silence > 3000 or silence < 0 or now < tonumber(reap_after or 0) then return {finish(false), 0, 0} end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('ZCARD', DEAD)
local reaped, died, looked = 0, 0, 0
local function take(id, claim)
  local due, failures, crashes, _, options, reason = tonumber(string.match(claim, '^%d+', 17)) or now, attrs_of(id)
  crashes, reaped = crashes + 1, reaped + 1
  redis.call('HDEL', CLAIMS, id)
  if crashes > tonumber(max_crashes or 5) then
    local why = 'the lease ran out ' .. int(crashes) .. ' times' .. (reason ~= '' and '; before that: ' .. reason or '')
    set_attrs(id, failures, crashes, nil, options, why)
    redis.call('ZADD', DEAD, now, id)
    died = died + 1
  elseif crashes == 1 then
    set_attrs(id, failures, crashes, nil, options, reason)
    redis.call('ZADD', SCHEDULED, math.min(due, now), id)
  else
    local chance = tonumber(string.sub(redis.sha1hex(claim .. id), 1, 6), 16) / 16777216
    local wait_ms = 1000 * 2 ^ math.min(crashes - 1, 20) * (0.5 + chance)
    set_attrs(id, failures, crashes, due, options, reason)
    redis.call('ZADD', SCHEDULED, math.ceil(now_up + wait_ms), id)
  end
end
local function end_claim(token) -- takes the ids under the claim's lease, up to the limit; the lease ends with the last
  local left = 0
  for id in string.gmatch(redis.call('HGET', CLAIMS, LEASE_MARK .. token) or '', '[^\n]+') do
    local claim = redis.call('HGET', CLAIMS, id) -- another token's if the id was settled and claimed again
    looked = looked + 1
    if claim and string.find(claim, token, 1, true) == 1 and not has_own_lease(claim) then
      if reaped < limit then
        take(id, claim)
      else
        left = left + 1
      end
    end
  end
  if left > 0 then
    redis.call('HSET', CLAIMS, COUNT_MARK .. token, left)
  else
    redis.call('HDEL', CLAIMS, LEASE_MARK .. token, COUNT_MARK .. token)
    redis.call('ZREM', LEASES, LEASE_MARK .. token)
  end
end
local late = redis.call('ZRANGE', LEASES, '-inf', now, 'BYSCORE', 'LIMIT', 0, limit)
for _, lease in ipairs(late) do
  if reaped == limit or looked >= 10000 then break end
  if string.sub(lease, 1, 1) == LEASE_MARK then
    end_claim(string.sub(lease, 2))
  else
    local claim = redis.call('HGET', CLAIMS, lease) or ''
    redis.call('ZREM', LEASES, lease)
    take(lease, claim)
    if #claim > 16 and not has_own_lease(claim) then
      release_from_claim(string.sub(claim, 1, 16), 1)
    end
  end
end
if reaped > 0 then
  redis.call('HINCRBY', META, 'crashed', reaped)
end
if died > 0 then
  redis.call('HINCRBY', META, 'died', died)
end
return {finish(#late > 0), reaped, died}
#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/release.lua and lua/blocks: change these, not this file.
-- release: gives messages back (leased -> scheduled at the original due, so due at once); charges no attempt.
-- KEYS   the ten of the queue
-- ARGV   now | per delivery, 1 to 1,000: id, token
-- Reply  {header, {OK | GONE | LOST, ...}}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log n) a delivery
-- Again  LOST

local SCHEDULED, READY, LEASES, CLAIMS, MESSAGES, ATTRS, DEAD, RECENT, NODES, META = unpack(KEYS)
local base, queue, slash, partition = string.match(META or '', '^(dueq:{([^{}/%c]+)(/?)(%d*)}):meta$')
if #KEYS ~= 10 or not base or #queue > 128 or #slash > #partition
  or SCHEDULED ~= base .. ':scheduled' or READY ~= base .. ':ready' or LEASES ~= base .. ':leases'
  or CLAIMS ~= base .. ':claims' or MESSAGES ~= base .. ':messages' or ATTRS ~= base .. ':attrs'
  or DEAD ~= base .. ':dead' or RECENT ~= base .. ':recent' or NODES ~= base .. ':nodes' then
  return redis.error_reply('BADKEYS give the ten keys of one queue, in their order: dueq:{NAME}:scheduled, ready, '
    .. 'leases, claims, messages, attrs, dead, recent, nodes, meta')
end
local layout, incarnation, seq, paused, test =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq')
end
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
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0}
end
local function parse_attrs(text) -- failures, crashes, original due or nil, options, last error
  local failures, crashes, due, options, reason = string.match(text or '', '^(%d+) (%d+) ([%d-]+) ([^\n]*)\n(.*)$')
  return tonumber(failures or 0), tonumber(crashes or 0), tonumber(due), options or '', reason or ''
end
local function attrs_of(id) return parse_attrs(redis.call('HGET', ATTRS, id)) end
local function set_attrs(id, failures, crashes, due, options, reason)
  if failures + crashes == 0 and not due and options == '' and reason == '' then
    return redis.call('HDEL', ATTRS, id)
  end
  local counts = int(failures) .. ' ' .. int(crashes) .. ' ' .. (due and int(due) or '-')
  redis.call('HSET', ATTRS, id, counts .. ' ' .. options .. '\n' .. reason)
end
-- A claim has one lease for everything that it granted. First bytes of its names, before the token: LEASE_MARK of the
-- lease in LEASES and of the granted ids in CLAIMS; COUNT_MARK of the number of ids still under the lease, in CLAIMS.
local LEASE_MARK, COUNT_MARK = '\1', '\2'
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
-- Returns GONE or LOST; or nil, the id's value in CLAIMS and its original due time, if this token holds it.
local function refusal_of(id, token)
  local claim = redis.call('HGET', CLAIMS, id)
  if claim and #token == 16 and string.sub(claim, 1, 16) == token then
    return nil, claim, tonumber(string.match(claim, '^%d+', 17)) or 0
  end
  return redis.call('HEXISTS', MESSAGES, id) == 1 and 'LOST' or 'GONE'
end
local function end_lease(id, claim)
  redis.call('HDEL', CLAIMS, id)
  if has_own_lease(claim) then
    redis.call('ZREM', LEASES, id)
  else
    release_from_claim(string.sub(claim, 1, 16), 1)
  end
end
local count = (#ARGV - 1) / 2
if count < 1 or count > 1000 or count % 1 ~= 0 then
  return redis.error_reply('BADARGS release takes now, then id, token for 1 to 1000 deliveries')
end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES)
local replies, changed = {}, 0
for i = 1, count do
  local id = ARGV[2 * i]
  local refusal, claim, due = refusal_of(id, ARGV[2 * i + 1])
  if refusal then
    replies[i] = refusal
  else
    local failures, crashes, _, options, reason = attrs_of(id)
    end_lease(id, claim)
    set_attrs(id, failures, crashes, nil, options, reason)
    redis.call('ZADD', SCHEDULED, math.min(due, now), id)
    replies[i], changed = 'OK', changed + 1
  end
end
if changed > 0 then
  redis.call('HINCRBY', META, 'released', changed)
end
return {finish(changed > 0), replies}
#!lua
-- Made by scripts/lua-dist from lua/requeue.lua and lua/blocks: change these, not this file.
-- requeue: revives dead messages (dead -> scheduled, due now), by ids or the oldest ones; attempts start from zero.
-- KEYS   the ten of the queue
-- ARGV   now | ids | 1 to 1,000 ids
--        now | oldest | limit: 1 to 1,000 | only those that died at or before this ms, or empty
-- Reply  ids: {header, {REQUEUED | NOT_DEAD <state> | ABSENT, ...}}
--        oldest: {header, requeued, how many selected dead messages remain}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, OOM: nothing was written
-- Cost   O(log n) a message
-- Again  ids: NOT_DEAD, until it is dead again; oldest: takes the next ones

local SCHEDULED, READY, LEASES, CLAIMS, MESSAGES, ATTRS, DEAD, RECENT, NODES, META = unpack(KEYS)
local base, queue, slash, partition = string.match(META or '', '^(dueq:{([^{}/%c]+)(/?)(%d*)}):meta$')
if #KEYS ~= 10 or not base or #queue > 128 or #slash > #partition
  or SCHEDULED ~= base .. ':scheduled' or READY ~= base .. ':ready' or LEASES ~= base .. ':leases'
  or CLAIMS ~= base .. ':claims' or MESSAGES ~= base .. ':messages' or ATTRS ~= base .. ':attrs'
  or DEAD ~= base .. ':dead' or RECENT ~= base .. ':recent' or NODES ~= base .. ':nodes' then
  return redis.error_reply('BADKEYS give the ten keys of one queue, in their order: dueq:{NAME}:scheduled, ready, '
    .. 'leases, claims, messages, attrs, dead, recent, nodes, meta')
end
local layout, incarnation, seq, paused, test =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq')
end
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
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0}
end
local function state_of(id)
  if (string.byte(id) or 0) < 32 then return 'absent' end -- the placeholder or an entry of a claim, no message
  if redis.call('ZSCORE', SCHEDULED, id) then return 'scheduled' end
  if redis.call('HEXISTS', CLAIMS, id) == 1 then return 'leased' end
  if redis.call('ZSCORE', DEAD, id) then return 'dead' end
  return redis.call('HEXISTS', MESSAGES, id) == 1 and 'ready' or 'absent'
end
local function parse_attrs(text) -- failures, crashes, original due or nil, options, last error
  local failures, crashes, due, options, reason = string.match(text or '', '^(%d+) (%d+) ([%d-]+) ([^\n]*)\n(.*)$')
  return tonumber(failures or 0), tonumber(crashes or 0), tonumber(due), options or '', reason or ''
end
local function attrs_of(id) return parse_attrs(redis.call('HGET', ATTRS, id)) end
local function set_attrs(id, failures, crashes, due, options, reason)
  if failures + crashes == 0 and not due and options == '' and reason == '' then
    return redis.call('HDEL', ATTRS, id)
  end
  local counts = int(failures) .. ' ' .. int(crashes) .. ' ' .. (due and int(due) or '-')
  redis.call('HSET', ATTRS, id, counts .. ' ' .. options .. '\n' .. reason)
end
local form, limit = ARGV[2], tonumber(ARGV[3] or '')
if not (form == 'ids' and #ARGV >= 3 and #ARGV <= 1002) and not (form == 'oldest' and #ARGV == 4
  and limit and limit >= 1 and limit <= 1000 and limit % 1 == 0 and string.find(ARGV[4], '^%d*$')) then
  return redis.error_reply(
    'BADARGS requeue takes now, ids, then 1 to 1000 ids; or now, oldest, limit (1 to 1000), died at or before ms')
end
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES); redis.call('ZCARD', DEAD)
local replies, changed = {}, 0
local function requeue(id)
  local _, _, _, options = attrs_of(id)
  redis.call('ZREM', DEAD, id)
  set_attrs(id, 0, 0, nil, options, '')
  redis.call('ZADD', SCHEDULED, now, id)
  changed = changed + 1
end
if form == 'ids' then
  for i = 3, #ARGV do
    local state = state_of(ARGV[i])
    if state == 'dead' then
      requeue(ARGV[i])
    end
    replies[i - 2] = state == 'dead' and 'REQUEUED' or state == 'absent' and 'ABSENT' or 'NOT_DEAD ' .. state
  end
else
  local before = ARGV[4] == '' and '(inf' or ARGV[4]
  for _, id in ipairs(redis.call('ZRANGE', DEAD, '-inf', before, 'BYSCORE', 'LIMIT', 0, limit)) do
    requeue(id)
  end
end
if changed > 0 then
  redis.call('HINCRBY', META, 'requeued', changed)
end
if form == 'ids' then return {finish(changed > 0), replies} end
return {finish(changed > 0), changed, redis.call('ZCOUNT', DEAD, '-inf', ARGV[4] == '' and '(inf' or ARGV[4])}
#!lua
-- Made by scripts/lua-dist from lua/reschedule.lua and lua/blocks: change these, not this file.
-- reschedule: gives waiting messages another due (scheduled or ready -> scheduled); the old due is forgotten.
-- KEYS   the ten of the queue
-- ARGV   now | per message, 1 to 1,000: id, due (unix ms, or +ms from now), expected due in ms or empty
-- Reply  {header, {MOVED <due ms> | CONFLICT <due ms> | LEASED | DEAD | ABSENT | INVALID <why>, ...}}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, OOM: nothing was written
-- Cost   O(log n) a message; one scan of the ready list if one is ready
-- Again  with an absolute due and an expected one: MOVED, or CONFLICT if another call moved it meanwhile; else moves it
--        again

local SCHEDULED, READY, LEASES, CLAIMS, MESSAGES, ATTRS, DEAD, RECENT, NODES, META = unpack(KEYS)
local base, queue, slash, partition = string.match(META or '', '^(dueq:{([^{}/%c]+)(/?)(%d*)}):meta$')
if #KEYS ~= 10 or not base or #queue > 128 or #slash > #partition
  or SCHEDULED ~= base .. ':scheduled' or READY ~= base .. ':ready' or LEASES ~= base .. ':leases'
  or CLAIMS ~= base .. ':claims' or MESSAGES ~= base .. ':messages' or ATTRS ~= base .. ':attrs'
  or DEAD ~= base .. ':dead' or RECENT ~= base .. ':recent' or NODES ~= base .. ':nodes' then
  return redis.error_reply('BADKEYS give the ten keys of one queue, in their order: dueq:{NAME}:scheduled, ready, '
    .. 'leases, claims, messages, attrs, dead, recent, nodes, meta')
end
local layout, incarnation, seq, paused, test =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq')
end
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
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0}
end
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
local function parse_attrs(text) -- failures, crashes, original due or nil, options, last error
  local failures, crashes, due, options, reason = string.match(text or '', '^(%d+) (%d+) ([%d-]+) ([^\n]*)\n(.*)$')
  return tonumber(failures or 0), tonumber(crashes or 0), tonumber(due), options or '', reason or ''
end
local function attrs_of(id) return parse_attrs(redis.call('HGET', ATTRS, id)) end
local function set_attrs(id, failures, crashes, due, options, reason)
  if failures + crashes == 0 and not due and options == '' and reason == '' then
    return redis.call('HDEL', ATTRS, id)
  end
  local counts = int(failures) .. ' ' .. int(crashes) .. ' ' .. (due and int(due) or '-')
  redis.call('HSET', ATTRS, id, counts .. ' ' .. options .. '\n' .. reason)
end
local function due_ms(text) -- '<unix ms>' or '+<delay ms>' as unix ms; nil for other text and beyond 100 years
  local ahead = string.byte(text) == 43
  if #text > (ahead and 16 or 15) or not string.find(text, '^%+?%d+$') then return nil end
  local due = tonumber(text) + (ahead and now_up or 0)
  return due <= now_up + 3155760000000 and due or nil
end
-- RECENT remembers, each until its score:
--   an id + CANCELLED or PUSHED_AGAIN   it was cancelled or purged; PUSHED_AGAIN: and pushed again since then
--   CALL_MARK attempt                   this call of push was made; + PARTLY: of its items only those below count
--   CALL_MARK attempt ' ' id            such an item
--   ENDED_MARK id                       the message ended or moved near its due; the score is that time + REPEAT_MS
-- The fractions are part of the score. META's ended_until is the latest score of ENDED_MARK, rounded up.
local CALL_MARK, ENDED_MARK = '\3', '\4'
local CANCELLED, PUSHED_AGAIN, PARTLY = 0.5, 0.25, 0.5
local function trim_recent(count) -- removes at most `count` names of RECENT whose time is over
  local over = math.min(redis.call('ZCOUNT', RECENT, '-inf', now), count)
  if over > 0 then
    redis.call('ZREMRANGEBYRANK', RECENT, 0, over - 1)
  end
end
local memory, memory_ms = {}, string.format('%.3f', now_us / 1000 + REPEAT_MS)
local function remember(score, name)
  memory[#memory + 1] = score
  memory[#memory + 1] = name
end
local function remember_end(id) remember(memory_ms, ENDED_MARK .. id) end
local function write_memory()
  if #memory == 0 then return end
  local latest = redis.call('HGET', META, 'ended_until') or '0'
  local later = string.find(latest, '^%d+$') and now_up + REPEAT_MS + 1 - tonumber(latest) or 0
  redis.call('ZADD', RECENT, unpack(memory))
  if later > 0 then
    redis.call('HINCRBY', META, 'ended_until', int(later))
  end
  trim_recent(#memory)
end
local count = (#ARGV - 1) / 3
if count < 1 or count > 1000 or count % 1 ~= 0 then
  return redis.error_reply('BADARGS reschedule takes now, then id, due, expected due for 1 to 1000 messages')
end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES)
redis.call('ZCARD', DEAD); redis.call('ZCARD', RECENT)
local replies, changed, unlisted = {}, 0, {}
local function one(id, due, expected)
  if not due then return 'INVALID due must be unix ms, or + and a delay in ms, at most 100 years ahead' end
  local bad_expected = expected ~= '' and not string.find(expected, '^%d+$')
  if bad_expected then return 'INVALID expected due must be unix ms or empty' end
  local state = state_of(id)
  if state ~= 'scheduled' and state ~= 'ready' then return string.upper(state) end
  local ready = state == 'ready' and (ready_entry(id) or '0:')
  local current = ready and string.match(ready, '^%d+') or redis.call('ZSCORE', SCHEDULED, id)
  if tonumber(current) == due then return 'MOVED ' .. int(due) end
  if expected ~= '' and tonumber(expected) ~= tonumber(current) then return 'CONFLICT ' .. int(current) end
  if ready then
    unlisted[ready] = true
  end
  redis.call('ZADD', SCHEDULED, due, id)
  local failures, crashes, original, options, reason = attrs_of(id)
  if original then
    set_attrs(id, failures, crashes, nil, options, reason)
  end
  if due - now <= REPEAT_MS then
    remember_end(id)
  end
  changed = changed + 1
  return 'MOVED ' .. int(due)
end
for i = 1, count do
  replies[i] = one(ARGV[3 * i - 1], due_ms(ARGV[3 * i]), ARGV[3 * i + 1])
end
remove_ready(unlisted)
write_memory()
return {finish(changed > 0), replies}
#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/resume.lua and lua/blocks: change these, not this file.
-- resume: ends a pause, and wakes nodes for the messages that wait.
-- KEYS   the ten of the queue
-- ARGV   now
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
local layout, incarnation, seq, paused, test =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq')
end
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
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0}
end
if #ARGV ~= 1 then return redis.error_reply('BADARGS resume takes now') end
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
local changed = paused
local head = old_head
paused, old_head = false, math.huge -- so that finish publishes a head that is due soon
if changed then
  redis.call('HDEL', META, 'paused')
end
return {finish(changed, false, head, old_deadline, old_length), 'OK'}
#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/retry.lua and lua/blocks: change these, not this file.
-- retry: counts a failure and schedules the next attempt (leased -> scheduled), or none at the limit (leased -> dead).
--        The limit is the message's max_attempts, else the queue's, else 20.
-- KEYS   the ten of the queue
-- ARGV   now | per delivery, 1 to 1,000: id, token, after in ms, error (its first 1,024 bytes are kept)
-- Reply  {header, {SCHEDULED <due ms> | DEAD | GONE | LOST | INVALID <why>, ...}}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log n) a delivery
-- Again  LOST

local SCHEDULED, READY, LEASES, CLAIMS, MESSAGES, ATTRS, DEAD, RECENT, NODES, META = unpack(KEYS)
local base, queue, slash, partition = string.match(META or '', '^(dueq:{([^{}/%c]+)(/?)(%d*)}):meta$')
if #KEYS ~= 10 or not base or #queue > 128 or #slash > #partition
  or SCHEDULED ~= base .. ':scheduled' or READY ~= base .. ':ready' or LEASES ~= base .. ':leases'
  or CLAIMS ~= base .. ':claims' or MESSAGES ~= base .. ':messages' or ATTRS ~= base .. ':attrs'
  or DEAD ~= base .. ':dead' or RECENT ~= base .. ':recent' or NODES ~= base .. ':nodes' then
  return redis.error_reply('BADKEYS give the ten keys of one queue, in their order: dueq:{NAME}:scheduled, ready, '
    .. 'leases, claims, messages, attrs, dead, recent, nodes, meta')
end
local layout, incarnation, seq, paused, test =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq')
end
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
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0}
end
local function parse_attrs(text) -- failures, crashes, original due or nil, options, last error
  local failures, crashes, due, options, reason = string.match(text or '', '^(%d+) (%d+) ([%d-]+) ([^\n]*)\n(.*)$')
  return tonumber(failures or 0), tonumber(crashes or 0), tonumber(due), options or '', reason or ''
end
local function attrs_of(id) return parse_attrs(redis.call('HGET', ATTRS, id)) end
local function set_attrs(id, failures, crashes, due, options, reason)
  if failures + crashes == 0 and not due and options == '' and reason == '' then
    return redis.call('HDEL', ATTRS, id)
  end
  local counts = int(failures) .. ' ' .. int(crashes) .. ' ' .. (due and int(due) or '-')
  redis.call('HSET', ATTRS, id, counts .. ' ' .. options .. '\n' .. reason)
end
local function due_ms(text) -- '<unix ms>' or '+<delay ms>' as unix ms; nil for other text and beyond 100 years
  local ahead = string.byte(text) == 43
  if #text > (ahead and 16 or 15) or not string.find(text, '^%+?%d+$') then return nil end
  local due = tonumber(text) + (ahead and now_up or 0)
  return due <= now_up + 3155760000000 and due or nil
end
-- A claim has one lease for everything that it granted. First bytes of its names, before the token: LEASE_MARK of the
-- lease in LEASES and of the granted ids in CLAIMS; COUNT_MARK of the number of ids still under the lease, in CLAIMS.
local LEASE_MARK, COUNT_MARK = '\1', '\2'
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
-- Returns GONE or LOST; or nil, the id's value in CLAIMS and its original due time, if this token holds it.
local function refusal_of(id, token)
  local claim = redis.call('HGET', CLAIMS, id)
  if claim and #token == 16 and string.sub(claim, 1, 16) == token then
    return nil, claim, tonumber(string.match(claim, '^%d+', 17)) or 0
  end
  return redis.call('HEXISTS', MESSAGES, id) == 1 and 'LOST' or 'GONE'
end
local function end_lease(id, claim)
  redis.call('HDEL', CLAIMS, id)
  if has_own_lease(claim) then
    redis.call('ZREM', LEASES, id)
  else
    release_from_claim(string.sub(claim, 1, 16), 1)
  end
end
local count = (#ARGV - 1) / 4
if count < 1 or count > 1000 or count % 1 ~= 0 then
  return redis.error_reply('BADARGS retry takes now, then id, token, after ms, error for 1 to 1000 deliveries')
end
local queue_limit = tonumber(redis.call('HGET', META, 'max_attempts') or 20)
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES); redis.call('ZCARD', DEAD)
local replies, changed, died = {}, 0, 0
for i = 1, count do
  local id, due = ARGV[4 * i - 2], due_ms('+' .. ARGV[4 * i])
  local refusal, claim = refusal_of(id, ARGV[4 * i - 1])
  if not due then
    replies[i] = 'INVALID after must be a delay in ms, at most 100 years'
  elseif refusal then
    replies[i] = refusal
  else
    local failures, crashes, _, options = attrs_of(id)
    failures, changed = failures + 1, changed + 1
    end_lease(id, claim)
    set_attrs(id, failures, crashes, nil, options, string.sub(ARGV[4 * i + 1], 1, 1024))
    if failures >= tonumber(string.match(options, 'max_attempts=(%d+)') or queue_limit) then
      redis.call('ZADD', DEAD, now, id)
      replies[i], died = 'DEAD', died + 1
    else
      redis.call('ZADD', SCHEDULED, due, id)
      replies[i] = 'SCHEDULED ' .. int(due)
    end
  end
end
if changed > died then
  redis.call('HINCRBY', META, 'retried', changed - died)
end
if died > 0 then
  redis.call('HINCRBY', META, 'died', died)
end
return {finish(changed > 0), replies}
#!lua
-- Made by scripts/lua-dist from lua/run_now.lua and lua/blocks: change these, not this file.
-- run_now: makes scheduled messages due now, unless they are due already.
-- KEYS   the ten of the queue
-- ARGV   now | 1 to 1,000 ids
-- Reply  {header, {MOVED <due ms> | ALREADY | LEASED | DEAD | ABSENT, ...}}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, OOM: nothing was written
-- Cost   O(log n) an id
-- Again  ALREADY, until it is claimed

local SCHEDULED, READY, LEASES, CLAIMS, MESSAGES, ATTRS, DEAD, RECENT, NODES, META = unpack(KEYS)
local base, queue, slash, partition = string.match(META or '', '^(dueq:{([^{}/%c]+)(/?)(%d*)}):meta$')
if #KEYS ~= 10 or not base or #queue > 128 or #slash > #partition
  or SCHEDULED ~= base .. ':scheduled' or READY ~= base .. ':ready' or LEASES ~= base .. ':leases'
  or CLAIMS ~= base .. ':claims' or MESSAGES ~= base .. ':messages' or ATTRS ~= base .. ':attrs'
  or DEAD ~= base .. ':dead' or RECENT ~= base .. ':recent' or NODES ~= base .. ':nodes' then
  return redis.error_reply('BADKEYS give the ten keys of one queue, in their order: dueq:{NAME}:scheduled, ready, '
    .. 'leases, claims, messages, attrs, dead, recent, nodes, meta')
end
local layout, incarnation, seq, paused, test =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq')
end
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
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0}
end
local function state_of(id)
  if (string.byte(id) or 0) < 32 then return 'absent' end -- the placeholder or an entry of a claim, no message
  if redis.call('ZSCORE', SCHEDULED, id) then return 'scheduled' end
  if redis.call('HEXISTS', CLAIMS, id) == 1 then return 'leased' end
  if redis.call('ZSCORE', DEAD, id) then return 'dead' end
  return redis.call('HEXISTS', MESSAGES, id) == 1 and 'ready' or 'absent'
end
local function parse_attrs(text) -- failures, crashes, original due or nil, options, last error
  local failures, crashes, due, options, reason = string.match(text or '', '^(%d+) (%d+) ([%d-]+) ([^\n]*)\n(.*)$')
  return tonumber(failures or 0), tonumber(crashes or 0), tonumber(due), options or '', reason or ''
end
local function attrs_of(id) return parse_attrs(redis.call('HGET', ATTRS, id)) end
local function set_attrs(id, failures, crashes, due, options, reason)
  if failures + crashes == 0 and not due and options == '' and reason == '' then
    return redis.call('HDEL', ATTRS, id)
  end
  local counts = int(failures) .. ' ' .. int(crashes) .. ' ' .. (due and int(due) or '-')
  redis.call('HSET', ATTRS, id, counts .. ' ' .. options .. '\n' .. reason)
end
-- RECENT remembers, each until its score:
--   an id + CANCELLED or PUSHED_AGAIN   it was cancelled or purged; PUSHED_AGAIN: and pushed again since then
--   CALL_MARK attempt                   this call of push was made; + PARTLY: of its items only those below count
--   CALL_MARK attempt ' ' id            such an item
--   ENDED_MARK id                       the message ended or moved near its due; the score is that time + REPEAT_MS
-- The fractions are part of the score. META's ended_until is the latest score of ENDED_MARK, rounded up.
local CALL_MARK, ENDED_MARK = '\3', '\4'
local CANCELLED, PUSHED_AGAIN, PARTLY = 0.5, 0.25, 0.5
local function trim_recent(count) -- removes at most `count` names of RECENT whose time is over
  local over = math.min(redis.call('ZCOUNT', RECENT, '-inf', now), count)
  if over > 0 then
    redis.call('ZREMRANGEBYRANK', RECENT, 0, over - 1)
  end
end
local memory, memory_ms = {}, string.format('%.3f', now_us / 1000 + REPEAT_MS)
local function remember(score, name)
  memory[#memory + 1] = score
  memory[#memory + 1] = name
end
local function remember_end(id) remember(memory_ms, ENDED_MARK .. id) end
local function write_memory()
  if #memory == 0 then return end
  local latest = redis.call('HGET', META, 'ended_until') or '0'
  local later = string.find(latest, '^%d+$') and now_up + REPEAT_MS + 1 - tonumber(latest) or 0
  redis.call('ZADD', RECENT, unpack(memory))
  if later > 0 then
    redis.call('HINCRBY', META, 'ended_until', int(later))
  end
  trim_recent(#memory)
end
if #ARGV < 2 or #ARGV > 1001 then return redis.error_reply('BADARGS run_now takes now, then 1 to 1000 ids') end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES)
redis.call('ZCARD', DEAD); redis.call('ZCARD', RECENT)
local replies, changed = {}, 0
for i = 2, #ARGV do
  local id = ARGV[i]
  local state = state_of(id)
  if state == 'ready' then
    replies[i - 1] = 'ALREADY'
  elseif state ~= 'scheduled' then
    replies[i - 1] = string.upper(state)
  elseif tonumber(redis.call('ZSCORE', SCHEDULED, id)) <= now then
    replies[i - 1] = 'ALREADY'
  else
    local failures, crashes, original, options, reason = attrs_of(id)
    redis.call('ZADD', SCHEDULED, now, id)
    if original then
      set_attrs(id, failures, crashes, nil, options, reason)
    end
    remember_end(id)
    replies[i - 1], changed = 'MOVED ' .. int(now), changed + 1
  end
end
write_memory()
return {finish(changed > 0), replies}
#!lua flags=no-writes
-- Made by scripts/lua-dist from lua/stats.lua and lua/blocks: change these, not this file.
-- stats: counts the messages of the queue, and its calls.
-- KEYS   the ten of the queue
-- ARGV   now
-- Reply  {header, {name, value, ...}}; {header, {}} if there is no such queue. Names:
--        scheduled, due (those of them that are due), ready, leased, dead, recent, nodes,
--        overdue_ms (age of the oldest message that is due and unclaimed),
--        the counters pushed, claimed, acked, repeated, retried, released, crashed, died, cancelled, requeued, purged,
--        trimmed, the limits, leader_until, reap_after, leader
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE
-- Cost   O(log n)
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
local layout, incarnation, seq, paused, test =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq')
end
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
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0}
end
if #ARGV ~= 1 then return redis.error_reply('BADARGS stats takes now') end
if not layout then return {finish(false, true), {}} end
local oldest = math.min(old_head, tonumber(string.match(redis.call('LINDEX', READY, 1) or '', '^%d+') or math.huge))
local scheduled, ready = redis.call('ZCARD', SCHEDULED) - 1, redis.call('LLEN', READY) - 1
local dead = redis.call('ZCARD', DEAD) - 1
local leased = math.max(0, redis.call('HLEN', MESSAGES) - 1 - scheduled - ready - dead) -- each message is in one state
local pairs_of = {
  'scheduled', scheduled, 'due', redis.call('ZCOUNT', SCHEDULED, '-inf', now), 'ready', ready,
  'leased', leased, 'dead', dead, 'recent', redis.call('ZCARD', RECENT) - 1,
  'nodes', redis.call('ZCOUNT', NODES, now - 3000, '(inf'), 'overdue_ms', oldest <= now and now - oldest or 0,
}
local defaults = {max_attempts = 20, max_crashes = 5, max_payload_bytes = 1048576, dead_keep_ms = 2592000000,
  dead_keep = 100000}
for _, name in ipairs({'pushed', 'claimed', 'acked', 'repeated', 'retried', 'released', 'crashed', 'died', 'cancelled',
  'requeued', 'purged', 'trimmed', 'max_attempts', 'max_crashes', 'max_messages', 'max_payload_bytes', 'dead_keep_ms',
  'dead_keep', 'leader_until', 'reap_after'}) do
  pairs_of[#pairs_of + 1] = name
  pairs_of[#pairs_of + 1] = tonumber(redis.call('HGET', META, name) or defaults[name] or 0)
end
pairs_of[#pairs_of + 1] = 'leader'
pairs_of[#pairs_of + 1] = redis.call('HGET', META, 'leader') or ''
return {finish(false, true), pairs_of}
#!lua
-- Made by scripts/lua-dist from lua/upsert.lua and lua/blocks: change these, not this file.
-- upsert: stores new messages, and moves or replaces waiting ones (absent, scheduled or ready -> scheduled).
-- KEYS   the ten of the queue; upsert makes them if they do not exist
-- ARGV   as push. options: words of on_conflict=reschedule|replace, which each message needs, max_attempts=N,
--        traceparent=00-...
--        reschedule: a waiting message gets the new due; replace: also the new payload and options, and no attempts
-- Reply  {header, {CREATED | MOVED | EXISTS <state> | FINISHED | FINISHED <ms> | EXPIRED | FULL <why> | INVALID <why>,
--        ...}}; EXISTS: it is leased or dead, and stays as it is
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, OOM: nothing was written
-- Cost   O(log n) a message, and one scan of the ready list if a ready message is moved
-- Again  with the same attempt: a message that still waits is moved again; otherwise as push

local SCHEDULED, READY, LEASES, CLAIMS, MESSAGES, ATTRS, DEAD, RECENT, NODES, META = unpack(KEYS)
local base, queue, slash, partition = string.match(META or '', '^(dueq:{([^{}/%c]+)(/?)(%d*)}):meta$')
if #KEYS ~= 10 or not base or #queue > 128 or #slash > #partition
  or SCHEDULED ~= base .. ':scheduled' or READY ~= base .. ':ready' or LEASES ~= base .. ':leases'
  or CLAIMS ~= base .. ':claims' or MESSAGES ~= base .. ':messages' or ATTRS ~= base .. ':attrs'
  or DEAD ~= base .. ':dead' or RECENT ~= base .. ':recent' or NODES ~= base .. ':nodes' then
  return redis.error_reply('BADKEYS give the ten keys of one queue, in their order: dueq:{NAME}:scheduled, ready, '
    .. 'leases, claims, messages, attrs, dead, recent, nodes, meta')
end
local layout, incarnation, seq, paused, test =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq')
end
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
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0}
end
-- RECENT remembers, each until its score:
--   an id + CANCELLED or PUSHED_AGAIN   it was cancelled or purged; PUSHED_AGAIN: and pushed again since then
--   CALL_MARK attempt                   this call of push was made; + PARTLY: of its items only those below count
--   CALL_MARK attempt ' ' id            such an item
--   ENDED_MARK id                       the message ended or moved near its due; the score is that time + REPEAT_MS
-- The fractions are part of the score. META's ended_until is the latest score of ENDED_MARK, rounded up.
local CALL_MARK, ENDED_MARK = '\3', '\4'
local CANCELLED, PUSHED_AGAIN, PARTLY = 0.5, 0.25, 0.5
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
end
local function due_ms(text) -- '<unix ms>' or '+<delay ms>' as unix ms; nil for other text and beyond 100 years
  local ahead = string.byte(text) == 43
  if #text > (ahead and 16 or 15) or not string.find(text, '^%+?%d+$') then return nil end
  local due = tonumber(text) + (ahead and now_up or 0)
  return due <= now_up + 3155760000000 and due or nil
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
-- The request of push and upsert, and what both read before they judge it.
--   count, ids           how many messages; their ids
--   attempt              as given; until_text and until_ms: its first part
--   room, max_payload    limits of the queue; room: how many messages more it may hold
--   largest              META's largest_payload_bytes, at least 4,096
--   found[i]             true or the payload if message i is in the queue; else false
--   plain                true if no id has a control byte; false: look at each
--   ended[i], call_mark  what RECENT holds of id i and of this call, if it may matter
--   too_late             true if the attempt is past its until, or claims one too far ahead
local count, attempt = (#ARGV - 2) / 4, ARGV[2] or ''
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
local max_messages, max_payload, ended_until =
  unpack(redis.call('HMGET', META, 'max_messages', 'max_payload_bytes', 'ended_until'))
local room = max_messages and tonumber(max_messages) + 1 - redis.call('HLEN', MESSAGES) or math.huge
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
redis.call('HLEN', CLAIMS)
redis.call('HLEN', ATTRS)
redis.call('ZCARD', DEAD)
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
local too_late = until_ms and (until_ms <= now or until_ms > now + REPEAT_MS)
-- Results of the call:
--   replies, created     item results; how many messages are new
--   longest              the longest payload stored, or `largest`
--   payloads, dues       id, payload, ... for MESSAGES; score, id, ... for SCHEDULED
--   memory               score, name, ... for RECENT
--   remember_call        whether RECENT must remember the call as a whole
--   changed, head, length  for finish
local replies, created, longest, payloads, dues, memory, remember_call, changed, head, length
local function state_of(id)
  if (string.byte(id) or 0) < 32 then return 'absent' end -- the placeholder or an entry of a claim, no message
  if redis.call('ZSCORE', SCHEDULED, id) then return 'scheduled' end
  if redis.call('HEXISTS', CLAIMS, id) == 1 then return 'leased' end
  if redis.call('ZSCORE', DEAD, id) then return 'dead' end
  return redis.call('HEXISTS', MESSAGES, id) == 1 and 'ready' or 'absent'
end
local function parse_attrs(text) -- failures, crashes, original due or nil, options, last error
  local failures, crashes, due, options, reason = string.match(text or '', '^(%d+) (%d+) ([%d-]+) ([^\n]*)\n(.*)$')
  return tonumber(failures or 0), tonumber(crashes or 0), tonumber(due), options or '', reason or ''
end
local function attrs_of(id) return parse_attrs(redis.call('HGET', ATTRS, id)) end
local function set_attrs(id, failures, crashes, due, options, reason)
  if failures + crashes == 0 and not due and options == '' and reason == '' then
    return redis.call('HDEL', ATTRS, id)
  end
  local counts = int(failures) .. ' ' .. int(crashes) .. ' ' .. (due and int(due) or '-')
  redis.call('HSET', ATTRS, id, counts .. ' ' .. options .. '\n' .. reason)
end
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
local create_queue, unlisted, rescheduled, moved_near = create, {}, {}, false
local function move(id, state, due, payload, stored) -- stored: the options of a replacement; false to reschedule
  if state == 'ready' then
    unlisted[ready_entry(id) or ''] = true
  end
  if stored then
    p, payloads[p + 1], payloads[p + 2], options[id] = p + 2, id, payload, stored
    longest = math.max(longest, #payload)
  else
    rescheduled[id] = true
  end
  if due - now <= REPEAT_MS then
    moved_near = true
    remember(string.format('%.3f', now_us / 1000 + REPEAT_MS), ENDED_MARK .. id)
  end
end
local function read_options(text) -- on_conflict, and the words to store; nil if a word is unknown
  local on_conflict, limit, parent = 'keep', '', ''
  for word in string.gmatch(text, '[^ ]+') do
    local conflict, attempts = string.match(word, '^on_conflict=(%l+)$'), string.match(word, '^max_attempts=(%d+)$')
    local trace, span = string.match(word, '^traceparent=00%-([0-9a-f]+)%-([0-9a-f]+)%-[0-9a-f][0-9a-f]$')
    if conflict == 'keep' or conflict == 'reschedule' or conflict == 'replace' then
      on_conflict = conflict
    elseif attempts and tonumber(attempts) >= 1 and tonumber(attempts) <= 1000000 then
      limit = 'max_attempts=' .. int(tonumber(attempts))
    elseif trace and #trace == 32 and #span == 16 and string.find(trace, '[^0]') and string.find(span, '[^0]') then
      parent = word
    else
      return nil
    end
  end
  return on_conflict, limit .. (limit ~= '' and parent ~= '' and ' ' or '') .. parent
end
local function live(score)
  score = tonumber(score)
  return score and score > now and score <= now_up + REPEAT_MS + 1 and score
end
local function finished(i) -- FINISHED, if this call is a repetition and the message ended since its first try
  local repeated = call_mark and (call_mark % 1 == 0 or redis.call('ZSCORE', RECENT, call .. ' ' .. ids[i]))
  if repeated then return 'FINISHED' end
  local last = until_ms and ended and ended[i] and live(ended[i])
  -- Until is the first try + 10,000 ms, with a fraction. Half a microsecond allows for the rounding of scores.
  local first = until_ms and (tonumber(string.match(attempt, '^[%d.]+')) or until_ms) - 10000 + 0.0005
  return last and last - REPEAT_MS > first and 'FINISHED ' .. string.format('%.3f', last - REPEAT_MS)
end
local function invalid(id, due, payload, on_conflict)
  if #id < 1 or #id > 200 or not plain and string.find(id, '%c') then
    return 'INVALID id must be 1 to 200 bytes, none of them a control byte'
  elseif not due then
    return 'INVALID due must be unix ms, or + and a delay in ms, at most 100 years ahead'
  elseif #payload > max_payload then
    return 'INVALID payload has ' .. #payload .. ' bytes, the limit of this queue is ' .. int(max_payload)
  elseif not on_conflict then
    return 'INVALID option: one of max_attempts=1..1000000, on_conflict=keep|reschedule|replace, '
      .. 'traceparent=00-TRACE-SPAN-FLAGS'
  elseif move and on_conflict == 'keep' then
    return 'INVALID upsert takes on_conflict=reschedule or on_conflict=replace: use push to keep a message'
  elseif not move and on_conflict ~= 'keep' then
    return 'INVALID push takes no on_conflict=' .. on_conflict .. ': use upsert'
  end
end
local function one(i)
  local id, text, payload, words = ids[i], ARGV[4 * i], ARGV[4 * i + 1], ARGV[4 * i + 2]
  local due, on_conflict, stored = due_of[text], 'keep', ''
  if due == nil then
    due = due_ms(text) or false
    due_of[text], due_text[text] = due, due and (string.byte(text) == 43 and int(due) or text)
  end
  if words ~= '' then
    on_conflict, stored = read_options(words)
  end
  local refusal = invalid(id, due, payload, on_conflict) or too_late and 'EXPIRED'
  if refusal then return refusal end
  if found[i] or taken[id] then
    local state = taken[id] and 'scheduled' or state_of(id)
    if not move or state == 'leased' or state == 'dead' then
      noted[#noted + 1] = id
      return 'EXISTS ' .. state
    end
    move(id, state, due, payload, on_conflict == 'replace' and stored)
    d, dues[d + 1], dues[d + 2], taken[id] = d + 2, due_text[text], id, true
    return 'MOVED'
  end
  local earlier = finished(i)
  if earlier then return earlier end
  if created >= room then return 'FULL this queue may hold ' .. max_messages .. ' messages' end
  if ended and ended[i] then -- a repeated cancel of this id must not take the new message
    local cancelled = tonumber(redis.call('ZSCORE', RECENT, id) or 0)
    if cancelled > now and cancelled % 1 == CANCELLED then
      remember(string.format('%.2f', math.floor(cancelled) + PUSHED_AGAIN), id)
    end
  end
  p, payloads[p + 1], payloads[p + 2] = p + 2, id, payload
  d, dues[d + 1], dues[d + 2] = d + 2, due_text[text], id
  created, taken[id], options[id] = created + 1, true, stored ~= '' and stored or nil
  longest = math.max(longest, #payload)
  if due - now <= REPEAT_MS then
    noted[#noted + 1] = id
  end
  return 'CREATED'
end
for i = 1, count do
  replies[i] = one(i)
  call_mark_suffices = call_mark_suffices and (replies[i] == 'CREATED' or string.find(replies[i], '^EXISTS') ~= nil)
end
remember_call = call_mark_suffices and #noted > 0
if until_ms and not call_mark_suffices and #noted > 0 and (not call_mark or call_mark % 1 > 0) then
  for _, id in ipairs(noted) do
    remember(until_text, call .. ' ' .. id)
  end
  remember(string.format('%.2f', until_ms + PARTLY), call)
end
changed = d > 0
if changed then
  if create_queue then
    create_queue()
  end
  if p > 0 then
    redis.call('HSET', MESSAGES, unpack(payloads))
  end
  redis.call('ZADD', SCHEDULED, unpack(dues))
end
for id, stored in pairs(options) do
  set_attrs(id, 0, 0, nil, stored, '')
end
remove_ready(unlisted)
for id in pairs(rescheduled) do -- only the new due counts from now on
  local failures, crashes, _, stored, reason = attrs_of(id)
  set_attrs(id, failures, crashes, nil, stored, reason)
end
ended_until = ended_until or '0'
if moved_near and string.find(ended_until, '^%d+$') and now_up + REPEAT_MS + 1 > tonumber(ended_until) then
  redis.call('HINCRBY', META, 'ended_until', int(now_up + REPEAT_MS + 1 - tonumber(ended_until)))
end
memory = memory or {}
if remember_call and until_ms then
  memory[#memory + 1], memory[#memory + 2] = until_text, call
end
if #memory > 0 then
  local function trim_recent(count) -- removes at most `count` names of RECENT whose time is over
    local over = math.min(redis.call('ZCOUNT', RECENT, '-inf', now), count)
    if over > 0 then
      redis.call('ZREMRANGEBYRANK', RECENT, 0, over - 1)
    end
  end
  redis.call('ZADD', RECENT, unpack(memory))
  trim_recent(#memory)
end
if longest > largest then -- of all payloads that were ever stored, as a power of two: claim plans its reads by it
  local bytes = 4096
  while bytes < longest do
    bytes = 2 * bytes
  end
  redis.call('HINCRBY', META, 'largest_payload_bytes', int(bytes - (largest > 4096 and largest or 0)))
end
if created > 0 then
  redis.call('HINCRBY', META, 'pushed', created)
end
return {finish(changed, false, head, old_deadline, length), replies}
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
local layout, incarnation, seq, paused, test =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'test'))
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1: use a newer dueq')
end
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
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function int(number) return string.format('%.0f', number) end
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if not paused and not quiet then
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
    elseif head < old_head and head - now <= 2000 then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0}
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
  found('meta', 'layout', '', create)
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
if test and ARGV[1] == '' then -- a caller with a clock of its own wants the field test
  found('meta', 'test', test, function() redis.call('HDEL', META, 'test') end)
end
local numbers = {'max_attempts', 'max_crashes', 'max_messages', 'max_payload_bytes', 'dead_keep_ms', 'dead_keep',
  'leader_until', 'last_beat', 'reap_after', 'ended_until', 'largest_payload_bytes', 'pushed', 'claimed', 'acked',
  'repeated', 'retried', 'released', 'crashed', 'died', 'cancelled', 'requeued', 'purged', 'trimmed'}
local values = redis.call('HMGET', META, unpack(numbers))
for i, name in ipairs(numbers) do
  local value = values[i]
  local sound = not value or i > 9 and is_counter(value) or i <= 9 and #value <= 16 and string.find(value, '^%d+$')
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
local silence = now - (tonumber(redis.call('HGET', META, 'last_beat') or 0) or 0)
if type(tokens) == 'table' and string.find(tokens.err or '', 'WRONGTYPE') then
  found('wake', wake, '')
elseif tokens == 0 and not paused and waits > 3000 and silence > 3000 then -- a live node fills the list at each beat
  found('silent', wake, int(waits), function() end) -- finish fills the list
end
if length > 1000 then
  found('ready_limit', READY, int(length))
end
return {finish(repaired > 0, not repairs), findings}

#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/promote.lua and lua/blocks: change these, not this file.
-- promote: scheduled and due -> ready, in due order, while the ready window (1,000) has room.
-- KEYS   the ten of the queue
-- ARGV   now | limit: 1 to 1,000 | followed: 1 if a claim follows in the same pipeline (it rings for what it leaves), else empty
-- Reply  {header, moved}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log n + moved)
-- Again  harmless

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
local function read_due(room) -- the first so many of scheduled that are due, at least one: their ids; their dues, each with the last place of its run
  local ids, dues, r = redis.call('ZRANGE', SCHEDULED, '-inf', now, 'BYSCORE', 'LIMIT', '0', room), {}, 0
  -- Not by ZSCORE, which a consumer may not (PROTOCOL.md, least rights): without it the scripts of producers are refused it.
  local last = tonumber(redis.call('ZMSCORE', SCHEDULED, ids[#ids])[1])
  -- Reading a score costs more than all else here: where messages are close together, they are counted by the millisecond.
  if old_head >= 0 and last < 9e15 and (last - old_head + 1) * 2.5 <= #ids then -- beyond, a number plus one may be the same number
    local n, due, text = 0, math.floor(old_head), int(math.floor(old_head))
    while n < #ids do
      local after = int(due + 1)
      local same = due >= math.floor(last) and #ids or n + redis.call('ZCOUNT', SCHEDULED, text, '(' .. after)
      if same > n then dues[r + 1], dues[r + 2], r, n = text, same, r + 2, same end
      due, text = due + 1, after
    end
  else
    local found = redis.call('ZRANGE', SCHEDULED, '0', #ids - 1, 'WITHSCORES')
    for i = 1, #ids do
      if found[2 * i] ~= dues[r - 1] then dues[r + 1], r = found[2 * i], r + 2 end
      dues[r] = i
    end
  end
  return ids, dues
end
local limit = tonumber(ARGV[2])
if #ARGV ~= 3 or not (ARGV[3] == '' or ARGV[3] == '1') or not limit or limit < 1 or limit > 1000 or limit % 1 ~= 0 then
  return redis.error_reply('BADARGS promote takes now, limit (1 to 1000), followed (1 or empty)')
end
local quiet = ARGV[3] == '1'
local room = math.min(limit, 1001 - old_length)
if not layout or paused or old_head > now or room < 1 then return {finish(false, quiet), 0} end
local entries, dues = read_due(room)
local from = 1
for run = 1, #dues, 2 do
  local prefix = dues[run] .. ':'
  for i = from, dues[run + 1] do entries[i] = prefix .. entries[i] end
  from = dues[run + 1] + 1
end
redis.call('RPUSH', READY, unpack(entries))
redis.call('ZREMRANGEBYRANK', SCHEDULED, '0', #entries - 1)
-- Nodes that would stand in for the leader need not. Where dues are close together one notice does for many.
local head = first_score(SCHEDULED)
if head - now > 25 then redis.pcall('SPUBLISH', base .. ':notice', head < math.huge and int(head) or '') end
return {finish(true, quiet, head, old_deadline, old_length + #entries), #entries}

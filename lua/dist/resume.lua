#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/resume.lua and lua/blocks: change these, not this file.
-- resume: ends a pause, and rings for what waits.
-- KEYS   the ten of the queue
-- ARGV   now
-- Reply  {header, OK}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(1)
-- Again  the same

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
if #ARGV ~= 1 then return redis.error_reply('BADARGS resume takes now') end
redis.call('HSTRLEN', META, 'layout') -- an operator's right: who lacks it is refused before anything is written
local changed = paused
local head = old_head
paused, old_head = false, math.huge -- so that a head that is due soon is told
if changed then redis.call('HDEL', META, 'paused') end
return {finish(changed, false, head, old_deadline, old_length), 'OK'}

#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/reap.lua and lua/blocks: change these, not this file.
-- reap: leased beyond its deadline -> scheduled, crashes + 1; or dead beyond max_crashes (5).
-- The first crash is due again at once; crash c >= 2 after 2^(c-1) s times 0.5 to 1.5, so that a message that kills its
-- node does not take the same neighbours with it each time. Nothing is reaped while the queue is on hold, or while no
-- node has beaten for 3 s: after an outage live nodes extend first.
-- KEYS   the ten of the queue
-- ARGV   now | limit: 1 to 1,000
-- Reply  {header, reaped, of these dead}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log n) a delivery; it looks at no more than about 10,000 of those that were granted with them
-- Again  takes the rest

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
local function parse_attrs(text) -- failures, crashes, original due or nil, options, last error
  local failures, crashes, due, options, reason = string.match(text or '', '^(%d+) (%d+) ([%d-]+) ([^\n]*)\n(.*)$')
  return tonumber(failures or 0), tonumber(crashes or 0), tonumber(due), options or '', reason or ''
end
local function attrs_of(id) return parse_attrs(redis.call('HGET', ATTRS, id)) end
local function set_attrs(id, failures, crashes, due, options, reason)
  if failures + crashes == 0 and not due and options == '' and reason == '' then return redis.call('HDEL', ATTRS, id) end
  redis.call('HSET', ATTRS, id, int(failures) .. ' ' .. int(crashes) .. ' ' .. (due and int(due) or '-') .. ' ' .. options .. '\n' .. reason)
end
-- A claim has one lease for all that it granted: \1 and its token in leases. Beside it in claims are its ids, and under \2 and the
-- token how many of them it still holds. An id that was extended has a lease of its own, and a + at the end of its claim.
local function has_own_lease(claim) return string.byte(claim, -1) == 43 end
local function release_from_claim(token, count) -- so many are no longer under the claim's lease: it ends with the last
  local held = tonumber(redis.call('HGET', CLAIMS, '\2' .. token))
  if held and held > count then redis.call('HSET', CLAIMS, '\2' .. token, held - count)
  elseif held then
    redis.call('HDEL', CLAIMS, '\1' .. token, '\2' .. token)
    redis.call('ZREM', LEASES, '\1' .. token)
  end
end
local limit = tonumber(ARGV[2])
if #ARGV ~= 2 or not limit or limit < 1 or limit > 1000 or limit % 1 ~= 0 then
  return redis.error_reply('BADARGS reap takes now, limit (1 to 1000)')
end
local seen, hold, max_crashes = unpack(redis.call('HMGET', META, 'last_beat', 'reap_after', 'max_crashes'))
local silence = now - tonumber(seen or 0)
if not layout or silence > 3000 or silence < 0 or now < tonumber(hold or 0) then return {finish(false), 0, 0} end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('ZCARD', DEAD)
local reaped, died, looked = 0, 0, 0
local function take(id, claim)
  local due, failures, crashes, _, options, reason = tonumber(string.match(claim, '^%d+', 17)) or now, attrs_of(id)
  crashes, reaped = crashes + 1, reaped + 1
  redis.call('HDEL', CLAIMS, id)
  if crashes > tonumber(max_crashes or 5) then
    set_attrs(id, failures, crashes, nil, options, 'the lease ran out ' .. int(crashes) .. ' times' .. (reason ~= '' and '; before that: ' .. reason or ''))
    redis.call('ZADD', DEAD, now, id)
    died = died + 1
  elseif crashes == 1 then
    set_attrs(id, failures, crashes, nil, options, reason)
    redis.call('ZADD', SCHEDULED, math.min(due, now), id)
  else
    local chance = tonumber(string.sub(redis.sha1hex(claim .. id), 1, 6), 16) / 16777216
    set_attrs(id, failures, crashes, due, options, reason)
    redis.call('ZADD', SCHEDULED, math.ceil(now_up + 1000 * 2 ^ math.min(crashes - 1, 20) * (0.5 + chance)), id)
  end
end
local function end_claim(token) -- takes what is still under the claim's lease, as far as the limit allows; then there is none
  local left = 0
  for id in string.gmatch(redis.call('HGET', CLAIMS, '\1' .. token) or '', '[^\n]+') do
    local claim = redis.call('HGET', CLAIMS, id) -- another token's, if it was settled and claimed again
    looked = looked + 1
    if claim and string.find(claim, token, 1, true) == 1 and not has_own_lease(claim) then
      if reaped < limit then take(id, claim) else left = left + 1 end
    end
  end
  if left > 0 then redis.call('HSET', CLAIMS, '\2' .. token, left)
  else
    redis.call('HDEL', CLAIMS, '\1' .. token, '\2' .. token)
    redis.call('ZREM', LEASES, '\1' .. token)
  end
end
local late = redis.call('ZRANGE', LEASES, '-inf', now, 'BYSCORE', 'LIMIT', 0, limit)
for _, lease in ipairs(late) do
  if reaped == limit or looked >= 10000 then break end
  if string.byte(lease) == 1 then end_claim(string.sub(lease, 2))
  else
    local claim = redis.call('HGET', CLAIMS, lease) or ''
    redis.call('ZREM', LEASES, lease)
    take(lease, claim)
    if #claim > 16 and not has_own_lease(claim) then release_from_claim(string.sub(claim, 1, 16), 1) end
  end
end
if reaped > 0 then redis.call('HINCRBY', META, 'crashed', reaped) end
if died > 0 then redis.call('HINCRBY', META, 'died', died) end
return {finish(#late > 0), reaped, died}

-- How each script begins and ends: its keys, the map, the clock, the header of its reply.

--- block: prelude
--- use: begin
--- use: finish

--- block: fenced_prelude
--- use: fenced_begin
--- use: finish

--- block: begin
--- use: partition
--- use: clock
--- use: open
--- use: before

--- block: fenced_begin
--- use: partition
--- use: fence
--- use: clock
--- use: open
--- use: before

--- block: partition
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

--- block: fence
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
    --- use: behind
  end
  if known ~= epoch then
    return redis.error_reply('REMAPPED this partition has ' .. (epoch and 'epoch ' .. int(epoch) or 'no map')
      .. ', the call has ' .. (known and 'epoch ' .. int(known) or 'no epoch') .. ': read the map in meta of the home, '
      .. 'find the partition of each id, and repeat the call with the epoch of the map')
  end
end

--- block: away
-- What a call replies about an id that is not here, while the partitions change. `word`: what this partition remembers
-- of the id.
--   MOVING      the message is on its way to another partition: the caller asks again soon
--   AWAY        to a probe: the caller asks the partition that the id belongs to now
--   AWAY word   to a probe: that is the reply, unless that partition has the message
--- use: departure_marks
local flight = epoch and redis.call('HGET', CLAIMS, DEPARTED_IDS)
local function away(id, word)
  if flight and string.find(flight, '\n' .. id .. '\n', 1, true) then return 'MOVING' end
  return not probes and (word or 'ABSENT') or word and 'AWAY ' .. word or 'AWAY'
end

--- block: behind
return redis.error_reply('BEHIND this partition has ' .. (epoch and 'an old' or 'no') .. ' map of the queue: call '
  .. 'remap here with forward and the map in meta of the home, and repeat the call')

--- block: needs_map
if slash ~= '' and not epoch then -- only remap creates a partition beside the home
  --- use: behind
end

--- block: clock
local now_us
if clock == '' then
  local time = redis.call('TIME')
  now_us = time[1] * 1000000 + time[2]
elseif string.find(clock or '', '^%d+%.?%d*$') and redis.call('HGET', META, 'test') then
  now_us = math.floor(clock * 1000 + 0.5)
else
  return redis.error_reply('BADNOW ARGV[1] must be empty: only a queue whose meta has a field test takes another clock')
end

--- block: open
local now, now_up = math.floor(now_us / 1000), math.ceil(now_us / 1000)
-- Nothing is promoted or claimed before `closed`: `opens`, the time of closed_until, or never while the queue is full.
-- False: it is open. The claim that uses up max_leased writes "full" before the time; lengths say whether it still is.
local opens, closed = false, false
if closed_until then
  opens = tonumber(string.match(closed_until, '^f?u?l?l? ?(%d+)$') or 0)
  opens = opens > now and opens
  closed = opens
  if string.byte(closed_until) == 102 then
    --- use: is_full
    closed = is_full() and math.huge or opens
  end
end
local NEVER = 7258118400000 -- 2200-01-01: the due time of timers that wait for nothing
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end

--- block: before
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time. A score costs as much as three lengths: that of LEASES is read once, at the end.
local old_head, old_length = first_score(SCHEDULED), redis.call('LLEN', READY)
redis.call('ZCARD', LEASES)

--- block: finish
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, length)
  head = head or changed and first_score(SCHEDULED) or old_head
  --- use: end
  return header
end

--- block: end
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
  --- use: is_full
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

--- block: is_full
-- KEYS, which is global, and not the names of the keys: each local that finish uses costs 0.2 % of a call.
local function is_full()
  local most = tonumber(string.match(redis.call('HGET', KEYS[10], 'max_leased') or '', '^%d+$') or '')
  --- use: leased
  return most and leased >= most
end

--- block: leased
-- Each message is in one state, so the leased ones are what the others leave.
local leased = redis.call('HLEN', KEYS[5]) - redis.call('ZCARD', KEYS[1]) - redis.call('LLEN', KEYS[2])
  - redis.call('ZCARD', KEYS[7]) + 2

--- block: create
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

--- block: is_tag
local function is_tag(text) -- whether it is the name of a partition: - or a number up to 999999999
  return text == '-' or text == '0' or #text <= 9 and string.find(text, '^[1-9]%d*$')
end

--- block: is_far_tag
local function is_far_tag(text) -- whether it names a partition in the other store
  return string.byte(text) == 64 and is_tag(string.sub(text, 2))
end

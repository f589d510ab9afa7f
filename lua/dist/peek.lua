#!lua flags=no-writes
-- Made by scripts/lua-dist from lua/peek.lua and lua/blocks: change these, not this file.
-- peek: returns a page of the messages in one state, in the order of time_ms (as in get) or from the newest one on.
-- KEYS   the ten of the queue
-- ARGV   now | state: scheduled, ready, leased or dead
--        | cursor: empty for the first page, then as replied; or '<ms>:' for a page that begins at this time. Of ready
--        a number below 1,000,000 is no time but a place in the list, as replied
--        | limit: 1 to 1,000; a page has 256 at most | perhaps newest: the latest time first, and from a
--        time on earlier ones; or empty
-- Reply  {header, next cursor or empty at the end, {{id, time_ms, failures, crashes, error}, ...}}; of ready with five
--        arguments also the place in the list where the page begins. A leased item ends with lease, since
--        and to_bury, as in get.
--        A page may have fewer messages than limit: timers of schedules are skipped.
--        Between two pages, a message that enters or leaves may be missing; one that moves may be returned twice.
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE
-- Cost   O(log n + limit); of leased messages it looks at 2,000 granted ids at most: then the page is shorter. Of
--        ready ones with a time one scan of the list
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
-- SINCE_MARK, before an id: when the delivery of an extended message began, in CLAIMS. The audit of release 0.1 passes
-- over such a name.
local LEASE_MARK, COUNT_MARK, SINCE_MARK = '\1', '\2', '\0='
-- Extend gives an id a lease of its own. A + at the end of the id's claim says so.
local function has_own_lease(claim) return string.byte(claim, -1) == 43 end
local function lease_member(id, claim) -- the member of LEASES that holds this id
  return has_own_lease(claim) and id or LEASE_MARK .. string.sub(claim, 1, 16)
end
-- Names the lease of an id's value in CLAIMS: the first 16 digits of the SHA-1 of its token, which tells no token; and
-- behind a blank the end of the node's id, if the token gives it.
local function lease_name(claim)
  local node = string.match(claim, '^@(%w%w%w%w%w%w%w)')
  return string.sub(redis.sha1hex(string.sub(claim, 1, 16)), 1, 16) .. (node and ' ' .. node or '')
end
-- When a delivery began, in ms; 0 if that is unknown: scripts before version 27 of the library claimed or extended it.
-- CLAIMS has it of an extended delivery, under SINCE_MARK and the id. Any other began when its claim's lease did.
local function begun(record, deadline) -- record: what CLAIMS has under LEASE_MARK and the token
  local lease_ms = string.match(record or '', '^\3(%d+)\n')
  return lease_ms and math.max(0, deadline - lease_ms) or 0
end
-- Zeros before the due in an id's claim are flags: one for a window, two for a message that dies when this lease ends.
local function to_bury(claim) return string.find(claim, '^00%d', 17) ~= nil end
local state, cursor, limit, newest = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5] == 'newest'
local zset = ({scheduled = SCHEDULED, dead = DEAD})[state or '']
local time, last = string.match(cursor or '', '^(%d+):(.*)$')
if #ARGV ~= 4 and not (#ARGV == 5 and (newest or ARGV[5] == ''))
  or not (zset or state == 'ready' or state == 'leased') or not (cursor == '' or time)
  or not limit or limit < 1 or limit > 1000 or limit % 1 ~= 0 then
  return redis.error_reply('BADARGS peek takes now, state (scheduled, ready, leased or dead), cursor (as replied, '
    .. '<ms>: or empty), limit (1 to 1000), and perhaps newest')
end
limit = math.min(limit, 256)
local items, looked, more = {}, 0, false
local function add(id, at, claim, since)
  if string.byte(id) == 4 then return end -- a timer of a schedule
  local failures, crashes, _, _, reason = attrs_of(id)
  items[#items + 1] = {id, tonumber(at), failures, crashes, reason, claim and lease_name(claim), since,
    claim and (to_bury(claim) and 1 or 0)}
end
-- The rank at which a page begins: that of this member, or if it has moved, of the time that it had; and whether the
-- member is still there. Timers that wait for nothing are not among the newest.
local function page_start(zset, member)
  if not time then return newest and redis.call('ZCOUNT', zset, '-inf', '(' .. int(NEVER)) - 1 or 0, false end
  if tonumber(redis.call('ZSCORE', zset, member) or -1) == tonumber(time) then
    return redis.call('ZRANK', zset, member), true
  end
  if newest then return redis.call('ZCOUNT', zset, '-inf', time) - 1, false end
  return redis.call('ZCOUNT', zset, '-inf', '(' .. time), false
end
local function page_of(zset, start, count) -- {{member, score}, ...} in the order of the page
  local first, past = newest and math.max(0, start - count + 1) or start, {}
  if start < 0 then return past end
  local found = redis.call('ZRANGE', zset, first, newest and start or start + count - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    past[newest and (#found + 1 - i) / 2 or (i + 1) / 2] = {found[i], found[i + 1]}
  end
  return past
end
local function add_claim(token, at, after) -- the ids under the claim's lease, in the order in which it granted them
  local ids, record = {}, redis.call('HGET', CLAIMS, LEASE_MARK .. token) or ''
  local since = begun(record, at)
  for id in string.gmatch(record, '[^\n]+') do
    ids[#ids + 1] = id
  end
  for i = 1, #ids do
    local id = ids[newest and #ids + 1 - i or i]
    looked = looked + 1
    local claim = not after and #items < limit and redis.call('HGET', CLAIMS, id)
    if claim and string.find(claim, token, 1, true) == 1 and not has_own_lease(claim) then
      add(id, at, claim, since)
    end
    if id == after then
      after = nil
    end
  end
end
if state == 'leased' then
  local start, same = page_start(LEASES, lease_member(last or '', time and redis.call('HGET', CLAIMS, last) or '+'))
  for i, lease in ipairs(page_of(LEASES, start, limit + 1)) do
    local member, at, after = lease[1], lease[2], same and i == 1 and last or nil
    -- A claim may hold few of the ids that it granted. The page ends early, so that no call looks at too many.
    more = #items == limit or #items > 0 and looked >= 1000
    if more or at == 'inf' then break end
    if string.sub(member, 1, 1) == LEASE_MARK then
      add_claim(string.sub(member, 2), at, after)
    elseif member ~= after then
      add(member, at, redis.call('HGET', CLAIMS, member) or '',
        tonumber(redis.call('HGET', CLAIMS, SINCE_MARK .. member) or 0))
    end
  end
  cursor = (more or #items == limit) and int(math.ceil(items[#items][2])) .. ':' .. items[#items][1] or ''
elseif zset then
  local start, same = page_start(zset, last)
  if same then
    start = start + (newest and -1 or 1)
  end
  local page = page_of(zset, start, limit)
  for _, found in ipairs(page) do
    if found[2] ~= 'inf' then
      add(found[1], found[2])
    end
  end
  local final = page[limit]
  cursor = final and final[2] ~= 'inf' and int(math.ceil(final[2])) .. ':' .. final[1] or ''
else
  local start = newest and old_length - 1 or 1
  if time and #time < 7 then
    start = tonumber(time)
  elseif time then
    local list = redis.call('LRANGE', READY, 1, -1)
    start = newest and #list or 1
    while list[start] do
      local due = tonumber(string.match(list[start], '^%d+') or 0)
      if newest and due <= tonumber(time) or not newest and due >= tonumber(time) then break end
      start = start + (newest and -1 or 1)
    end
  end
  local first = newest and math.max(1, start - limit + 1) or start
  local page = start > 0 and redis.call('LRANGE', READY, first, newest and start or start + limit - 1) or {}
  for i = 1, #page do
    local at, id = string.match(page[newest and #page + 1 - i or i], '^(%d+):(.*)$')
    if id then
      add(id, at)
    end
  end
  cursor = #page == limit and int(newest and start - limit or start + limit) .. ':' or ''
  if #ARGV == 5 then return {finish(false, true), cursor, items, start} end
end
return {finish(false, true), cursor, items}

#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/remap.lua and lua/blocks: change these, not this file.
-- remap: gives this partition a map of the queue's partitions.
-- KEYS   the ten of the partition; remap makes them if they do not exist
-- ARGV   now | change | expected epoch: of the partition's map, 0 without one | map: '<epoch>|<old tags>|<new tags>',
--        or '<epoch>|<old tags>|<new tags>|<url>', where the tags of one list have an @: these partitions are there
--        now | close | expected epoch | map
--        now | forward | map
--        now | remove | expected epoch
--        change: only without messages, in any state or remembered; close: whatever the partition holds; forward:
--        only if the map is newer, as a client that met BEHIND does; remove: deletes the keys of a partition without
--        messages, but for the home
-- Reply  {header, DONE | HAS <messages> | REMEMBERS <ms until the last is forgotten> | EPOCH <the partition's>}
--        DONE also if the partition has this map already, of forward if it has a newer one, and of remove if it does
--        not exist
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(tags); of change also the names in RECENT that say how a message ended, 10,000 at most
-- Again  DONE; EPOCH if another map came since

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
local function is_tag(text) -- whether it is the name of a partition: - or a number up to 999999999
  return text == '-' or text == '0' or #text <= 9 and string.find(text, '^[1-9]%d*$')
end
local function is_far_tag(text) -- whether it names a partition in the other store
  return string.byte(text) == 64 and is_tag(string.sub(text, 2))
end
-- Reads a map EPOCH|OLD TAGS|NEW TAGS, or such a map with a URL, where the tags with @ are: its epoch, and its tags as
-- a set. For other text nil and the reason.
local function read_map(text)
  local number, old, new, url = string.match(text, '^([1-9]%d*)|([^|]*)|([^|]*)(|?.*)$')
  local epoch_of, known = tonumber(number), {}
  if not number or #number > 16 or epoch_of >= 9007199254740992 then
    return nil, 'must be EPOCH|OLD TAGS|NEW TAGS, with an epoch of 1 to 9007199254740991'
  end
  local is_far = string.find(text, '@', 1, true) ~= nil
  if is_far ~= (url ~= '') or is_far and (#url > 512 or not string.find(url, '^|[^|@%c ]+$')) then
    return nil, 'must end with a URL without user and password if a tag has an @, and only then'
  end
  for _, list in ipairs({old, new}) do
    local tags, seen, far = {}, {}, string.byte(list) == 64
    for tag in string.gmatch(list, '[^ ]+') do
      if not (far and is_far_tag or is_tag)(tag) then
        return nil, 'has a tag that is neither - nor a number up to 999999999'
      end
      if seen[tag] then return nil, 'has a tag twice' end
      tags[#tags + 1], seen[tag], known[tag] = tag, true, true
    end
    if table.concat(tags, ' ') ~= list then return nil, 'must have one blank between two tags' end
    if tags[1] ~= (far and '@-' or '-') and not (list == new and new == '') then
      return nil, 'must begin both lists with -'
    end
    if #tags > 256 then return nil, 'has more than 256 partitions' end
  end
  -- The whole queue is at the URL: this home only says so.
  known['-'] = known['-'] or old == '@-' and new == old
  return epoch_of, known
end
local form = ARGV[2]
local removes = form == 'remove' and slash ~= ''
local expects = form == 'change' or form == 'close'
local expected = (expects or removes) and tonumber(string.match(ARGV[3] or '', '^%d+$')) or nil
local map = ARGV[#ARGV]
if not (expected and #ARGV == (removes and 3 or 4) or form == 'forward' and #ARGV == 3) then
  return redis.error_reply('BADARGS remap takes now, change or close, expected epoch, map; or now, forward, map; '
    .. 'or, not at the home, now, remove, expected epoch')
end
local function messages()
  return redis.call('HLEN', MESSAGES) - redis.call('HEXISTS', MESSAGES, '\0' .. string.rep('-', 70))
end
if removes then
  redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
  if not layout then return {finish(false), 'DONE'} end
  if epoch ~= expected then return {finish(false), 'EPOCH ' .. int(epoch or 0)} end
  local on_the_way = tonumber(string.match(redis.call('HGET', META, 'moving') or '', '%d+$') or 0)
  local held = messages() + on_the_way
  if held > 0 then return {finish(false), 'HAS ' .. int(held)} end
  -- Another program's key is not deleted: its type differs.
  redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('ZCARD', DEAD); redis.call('ZCARD', RECENT)
  redis.call('ZCARD', NODES)
  local wake = base .. ':wake'
  redis.call('UNLINK', wake)
  for _, key in ipairs(KEYS) do
    redis.call('UNLINK', key)
  end
  layout = nil
  return {finish(false), 'DONE'}
end
local map_epoch, tags = read_map(map)
if not map_epoch or not tags[slash == '' and '-' or partition] then
  return redis.error_reply('BADARGS the map ' .. (map_epoch and 'must have the tag of this partition' or tags))
end
if expects and map_epoch <= expected then
  return redis.error_reply('BADARGS the epoch of the map must be larger than the expected one')
end
if expects or not layout then -- a right of operators: others are refused before the first write
  redis.call('HSTRLEN', META, 'layout')
end
local own, own_map = unpack(redis.call('HMGET', META, 'epoch', 'map'))
own = tonumber(own or 0) or 0
local alone = map == int(map_epoch) .. '|-|-' -- a queue of one partition: it needs no map
local has = own == map_epoch and layout and (alone and not epoch or own_map == map)
if has or not expects and own >= map_epoch then return {finish(false), 'DONE'} end
if expects and own ~= expected then return {finish(false), 'EPOCH ' .. int(own)} end
-- Schedules have no other place than a queue of one partition.
local schedules = expects and not alone and tonumber(redis.call('HGET', META, 'schedules') or '') or 0
if schedules > 0 then return {finish(false), 'HAS ' .. int(messages())} end
if form == 'change' then
  local held = messages()
  if held > 0 then return {finish(false), 'HAS ' .. int(held)} end
  local limit = int(now_up + REPEAT_MS + 1) -- what is beyond it is no memory: the clock went back
  -- How a message ended (a byte 6) is for `get` only: nothing waits for it. Of 10,000 such names the last one is taken.
  local last, from, page = 0, 0, nil
  repeat
    page = redis.call('ZRANGE', RECENT, limit, '(' .. now, 'BYSCORE', 'REV', 'LIMIT', from, '1000', 'WITHSCORES')
    from = from + 1000
    for i = 1, #page, 2 do
      if string.byte(page[i]) ~= 6 or from == 10000 and i == 1999 then
        last = tonumber(page[i + 1])
        break
      end
    end
  until last > 0 or #page < 2000
  -- Windows may end later. Beyond the longest window the clock went back.
  local windows_until = tonumber(redis.call('HGET', META, 'windows_until') or '') or 0
  last = math.max(last, windows_until <= now_up + 2592000000 and windows_until or 0)
  if last > now then return {finish(false), 'REMEMBERS ' .. int(math.ceil(last - now_us / 1000))} end
end
create()
if alone then
  redis.call('HDEL', META, 'map', 'mapped_ms')
  layout, epoch = layout and layout > '2' and layout or '1', nil
  redis.call('HSET', META, 'layout', layout, 'epoch', int(map_epoch))
else
  layout, epoch = layout and layout > '2' and layout or '2', map_epoch
  redis.call('HSET', META, 'layout', layout, 'epoch', int(map_epoch), 'map', map, 'mapped_ms', int(now_up))
end
redis.pcall('SPUBLISH', base .. ':notice', int(now)) -- nodes that park beat now, and learn the map
return {finish(true, true), 'DONE'}

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
-- Cost   O(limit log n), and one scan of the ready list and of the ids of each claim that has an entry of the step
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
local function is_cursor(text) -- 64 bits at most: Redis refuses others
  return #text <= 20 and string.find(text, '^%d+$') and (#text < 20 or text <= '18446744073709551615')
end
local part, cursor, limit, repairs = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5] == '1'
local zset = ({scheduled = SCHEDULED, leases = LEASES, dead = DEAD})[part or '']
local hash = ({claims = CLAIMS, messages = MESSAGES, attrs = ATTRS})[part or '']
if #ARGV ~= 5 or not (zset or hash or part == 'ready') or not is_cursor(cursor)
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
local function readable(claim) return string.find(claim, '^%d+%a*%+?$', 17) end
local lists, sets = {}, {} -- by token: the ids that a claim granted, as text; as a set once another id asks for it
local function granted(token, id) -- whether this claim granted the id
  if sets[token] then return sets[token][id] end
  local ids = lists[token]
  if ids then
    sets[token] = {}
    for each in string.gmatch(ids, '[^\n]+') do
      sets[token][each] = true
    end
    return sets[token][id]
  end
  ids = redis.call('HGET', CLAIMS, LEASE_MARK .. token) or ''
  lists[token] = ids
  local length = #id -- a list of 1,000 ids is long: nothing copies it
  return string.find(ids, '\n' .. id .. '\n', 1, true) or ids == id or string.sub(ids, 1, length + 1) == id .. '\n'
    or string.sub(ids, -length - 1) == '\n' .. id
end
local function release(token, count) -- also forgets the list, which may have gone
  release_from_claim(token, count)
  lists[token], sets[token] = nil, nil
end
local function shared(id, claim) -- whether the id is under the lease of its claim
  return not has_own_lease(claim) and readable(claim) and granted(string.sub(claim, 1, 16), id)
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
    release(string.sub(claim, 1, 16), 1)
  end
  redis.call('ZREM', LEASES, id)
  redis.call('HDEL', CLAIMS, id, SINCE_MARK .. id)
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
      release(token, 0)
    else
      redis.call('ZADD', LEASES, 'NX', now_up + UNKNOWN_MS, LEASE_MARK .. token)
    end
  end)
end

local function most_payloads() -- as many as are sure to fit into 4 MiB
  local largest = tonumber(redis.call('HGET', META, 'largest_payload_bytes') or 4096) or 16777216
  return math.max(1, math.floor(4194304 / largest))
end

-- How many entries of a hash a step reads, so that the lists of their claims have about 10,000 ids in all: each leased
-- id may need another list.
local function most_lists(entries)
  local leased, leases = redis.call('HLEN', CLAIMS), redis.call('ZCARD', LEASES)
  return leased > 10000 and math.max(1, math.floor(10000 * entries * leases / leased / leased)) or limit
end

-- ATTRS keeps the message that follows a delivery (on_conflict=next) under this byte and the id:
-- '<due> <options>', LF, payload.
local NEXT_MARK = '\3'
-- ATTRS keeps the life of a message under this byte and the id: '<ms> <word> <due> <began> <node> <text>', a line for
-- each event, the latest last; what is unknown is -, or left out at the end. RECENT has the same name of a message that
-- has ended, until its life is forgotten.
local LIFE_MARK = '\7'
-- The batch that has left this partition and has not arrived for sure, in CLAIMS: the ids in it, each between two line
-- feeds; and the batch itself. META's `moving` says `<number> <tag> <messages>` of it, and is empty without one.
local DEPARTED_IDS, DEPARTED = '\4', '\5'
local function state_of(id)
  if (string.byte(id) or 0) < 32 then return 'absent' end -- the placeholder or an entry of a claim, no message
  if redis.call('ZSCORE', SCHEDULED, id) then return 'scheduled' end
  if redis.call('HEXISTS', CLAIMS, id) == 1 then return 'leased' end
  if redis.call('ZSCORE', DEAD, id) then return 'dead' end
  return redis.call('HEXISTS', MESSAGES, id) == 1 and 'ready' or 'absent'
end
-- Stores the records of a batch: name, place, score, payload, attrs. place: scheduled, dead, recent for a name of
-- RECENT, or life of a message before it. An id that the partition has is left as it is: what it has is newer. Only
-- with commands that a consumer may use, whose node ends the batch of a process that died.
-- Returns how many messages were stored.
local function land(records)
  local longest, largest, expires, windows_until = 4096, 4096, false, 0
  local scheduled, dead, attributes, stored = {}, {}, {}, {}
  for i = 1, #records, 5 do
    local name, place, score, payload, attrs = unpack(records, i, i + 4)
    if place == 'recent' then
      local known = tonumber(redis.call('ZMSCORE', RECENT, name)[1] or -1)
      if known < 0 or known > 0 and known <= now then -- 0: a cancel has ended the window
        redis.call('ZADD', RECENT, score, name)
      end
      if string.byte(name) == 5 then
        windows_until = math.max(windows_until, tonumber(score))
      end
    elseif place == 'life' then
      if stored[string.sub(name, 2)] and (layout or '') > '4' then
        attributes[#attributes + 1] = name
        attributes[#attributes + 1] = payload
      end
    elseif redis.call('HSETNX', MESSAGES, name, payload) == 1 then
      stored[name] = true
      local into = place == 'dead' and dead or scheduled
      into[#into + 1] = score
      into[#into + 1] = name
      if attrs ~= '' then
        attributes[#attributes + 1] = name
        attributes[#attributes + 1] = attrs
        expires = expires or string.find(attrs, '^[^\n]*expires=') ~= nil
      end
      longest = math.max(longest, #payload)
    end
  end
  if #scheduled > 0 then
    redis.call('ZADD', SCHEDULED, unpack(scheduled))
  end
  if #dead > 0 then
    redis.call('ZADD', DEAD, unpack(dead))
  end
  if #attributes > 0 then
    redis.call('HSET', ATTRS, unpack(attributes))
  end
  if expires then -- claim looks for messages that have expired
    redis.call('HSET', META, 'expiring', '1', 'selective', '1')
  end
  if windows_until > (tonumber(redis.call('HGET', META, 'windows_until') or '') or 0) then
    redis.call('HSET', META, 'windows_until', int(windows_until))
  end
  largest = math.max(4096, tonumber(redis.call('HGET', META, 'largest_payload_bytes') or '') or 4096)
  if longest > largest then -- of all payloads that were ever stored, as a power of two: claim plans its reads by it
    local bytes = 4096
    while bytes < longest do
      bytes = 2 * bytes
    end
    redis.call('HINCRBY', META, 'largest_payload_bytes', int(bytes - (largest > 4096 and largest or 0)))
  end
  return (#scheduled + #dead) / 2
end
-- Before a node's id, in CLAIMS: '<ms> @<text>', what its last beat that had a text told. Not in META: consumers may
-- delete no field of it.
local PROCESS_MARK = '\0@'
local look = {} -- by part: checks one entry
function look.leases(id, score)
  local deadline, is_claim = tonumber(score), string.sub(id, 1, 1) == LEASE_MARK
  local claim = not is_claim and redis.call('HGET', CLAIMS, id) or ''
  if is_claim then -- its ids are not read
    if redis.call('HSTRLEN', CLAIMS, id) == 0 then return look_claim(id) end
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
  local mark, owner = string.sub(id, 1, 2), string.sub(id, 3)
  if mark == SINCE_MARK or mark == PROCESS_MARK then -- scripts of an older release did not remove it with its owner
    local is_left = mark == SINCE_MARK and not redis.call('ZSCORE', LEASES, owner)
        and not has_own_lease(redis.call('HGET', CLAIMS, owner) or '')
      or mark == PROCESS_MARK and not redis.call('ZSCORE', NODES, owner)
    if is_left then
      local what = mark == SINCE_MARK and 'began' or 'process'
      found('unleased', owner, what, function() redis.call('HDEL', CLAIMS, id) end)
    end
    return
  end
  if (string.byte(id) or 3) < 3 then return look_claim(id) end
  if id == DEPARTED_IDS or id == DEPARTED then
    if id == DEPARTED and (redis.call('HGET', META, 'moving') or '') == '' then -- nobody would ask for it any more
      found('unleased', 'departed', '', function()
        land(cmsgpack.unpack(claim))
        redis.call('HDEL', CLAIMS, DEPARTED_IDS, DEPARTED)
      end)
    end
    return
  end
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
  elseif #at == 0 and string.byte(id) == 4 then -- a timer: it fires, and then finds its own due time
    found('unplaced', id, '', function() redis.call('ZADD', SCHEDULED, int(now), id) end)
  elseif #at == 0 and redis.call('HEXISTS', CLAIMS, id) == 0 then
    found('unplaced', id, '', function() bury(id, 'audit: it was in no state, and may have been handled') end)
  end
end
function look.scheduled(id, score)
  local due = tonumber(score)
  if not has_payload(id) then return report_without_payload(id, 'scheduled') end
  if due == math.huge and string.byte(id) ~= 4 then
    return found('score', id, 'scheduled inf', function() bury(id, 'audit: it was never due') end)
  end
  if due < 0 or due % 1 ~= 0 then
    found('score', id, 'scheduled ' .. score, function()
      redis.call('ZADD', SCHEDULED, due == math.huge and int(now) or math.max(0, math.ceil(due)), id)
    end)
  end
end
function look.dead(id, score)
  if not has_payload(id) then return report_without_payload(id, 'dead') end
  if tonumber(score) < 0 or tonumber(score) == math.huge then
    found('score', id, 'dead ' .. score, function() redis.call('ZADD', DEAD, now, id) end)
  end
end
local function look_next(id, message) -- whether a delivery runs that this message follows
  if leased(id) then return end
  found('next', id, '', function() -- the delivery ended without its script: the next message starts now
    local due, options, payload = string.match(message, '^(%d+) ([^\n]*)\n(.*)$')
    redis.call('HDEL', ATTRS, NEXT_MARK .. id)
    if due then
      remove_from_states_except(id)
      redis.call('HSET', MESSAGES, id, payload)
      set_attrs(id, 0, 0, nil, options, '')
      redis.call('ZADD', SCHEDULED, due, id)
    end
  end)
end
function look.attrs(id, value)
  if string.sub(id, 1, 1) == NEXT_MARK then return look_next(string.sub(id, 2), value) end
  if string.sub(id, 1, 1) == LIFE_MARK then
    if not has_payload(string.sub(id, 2)) and not redis.call('ZSCORE', RECENT, id) then
      found('attrs', string.sub(id, 2), 'life', function() redis.call('HDEL', ATTRS, id) end)
    end
    return
  end
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
  if part == 'messages' then
    scan[5] = math.min(limit, most_lists(redis.call('HLEN', MESSAGES)))
    if (redis.REDIS_VERSION_NUM or 0) >= 0x00070400 then
      scan[6], step = 'NOVALUES', 1
    else -- HSCAN returns the payloads too: limit them to a few megabytes
      scan[5] = math.min(scan[5], most_payloads())
    end
  elseif part == 'claims' then -- one claim may have granted a thousand ids
    scan[5] = math.min(math.ceil(limit / 10), most_lists(redis.call('HLEN', CLAIMS)))
  elseif part == 'attrs' and (layout or '') >= '3' then -- next messages are here, with their payloads
    scan[5] = math.min(limit, most_payloads())
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

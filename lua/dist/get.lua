#!lua flags=no-writes
-- Made by scripts/lua-dist from lua/get.lua and lua/blocks: change these, not this file.
-- get: returns one message, whatever its state.
-- KEYS   the ten of the queue
-- ARGV   now | id | at most so many bytes of the payload, or none: all
-- Reply  {header, {state, s, time_ms, t, failures, n, crashes, n, options, words, error, text, payload, bytes}};
--        {header, {}} if there is no such message; of an id that is remembered {header, {}, finished | expired |
--        cancelled, when it ended in ms, until when a window remembers it in ms or 0}
--        A leased message with a next one also has next_due, t; with a third argument also payload_bytes, n, the
--        length of the whole payload. Last of a leased one are lease, the name of its lease;
--        since, when the delivery began, ms, or 0; to_bury, 1 if it is to be dead when the lease ends, else 0.
--        Last of all life, if the queue keeps it: lines; behind until of one that ended
--        time_ms: the due of a scheduled or ready message, the lease deadline of a leased one, when a dead one died
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE; MOVING: it is on its way to another partition
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
    return redis.error_reply('BEHIND this partition has ' .. (epoch and 'an old' or 'no') .. ' map of the queue: call '
      .. 'remap here with forward and the map in meta of the home, and repeat the call')
  end
  if known ~= epoch then
    return redis.error_reply('REMAPPED this partition has ' .. (epoch and 'epoch ' .. int(epoch) or 'no map')
      .. ', the call has ' .. (known and 'epoch ' .. int(known) or 'no epoch') .. ': read the map in meta of the home, '
      .. 'find the partition of each id, and repeat the call with the epoch of the map')
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
-- ATTRS keeps the message that follows a delivery (on_conflict=next) under this byte and the id:
-- '<due> <options>', LF, payload.
local NEXT_MARK = '\3'
-- ATTRS keeps the life of a message under this byte and the id: '<ms> <word> <due> <began> <node> <text>', a line for
-- each event, the latest last; what is unknown is -, or left out at the end. RECENT has the same name of a message that
-- has ended, until its life is forgotten.
local LIFE_MARK = '\7'
local id, most = ARGV[2], tonumber(ARGV[3])
if #ARGV ~= 2 and not (#ARGV == 3 and most and #ARGV[3] <= 8 and string.find(ARGV[3], '^%d+$')) then
  return redis.error_reply('BADARGS get takes now, id, and perhaps at most how many bytes of the payload (0 to '
    .. '99999999)')
end
local state = state_of(id)
if state == 'absent' then
  -- What a call replies about an id that is not here, while the partitions change. `word`: what this partition remembers
  -- of the id.
  --   MOVING      the message is on its way to another partition: the caller asks again soon
  --   AWAY        to a probe: the caller asks the partition that the id belongs to now
  --   AWAY word   to a probe: that is the reply, unless that partition has the message
  -- The batch that has left this partition and has not arrived for sure, in CLAIMS: the ids in it, each between two line
  -- feeds; and the batch itself. META's `moving` says `<number> <tag> <messages>` of it, and is empty without one.
  local DEPARTED_IDS, DEPARTED = '\4', '\5'
  local flight = epoch and redis.call('HGET', CLAIMS, DEPARTED_IDS)
  local function away(id, word)
    if flight and string.find(flight, '\n' .. id .. '\n', 1, true) then return 'MOVING' end
    return not probes and (word or 'ABSENT') or word and 'AWAY ' .. word or 'AWAY'
  end
  if away(id) == 'MOVING' then
    return redis.error_reply('MOVING this message is on its way to another partition: repeat the call')
  end
  -- RECENT remembers, each until its score:
  --   an id + CANCELLED or PUSHED_AGAIN   it was cancelled or purged; PUSHED_AGAIN: and pushed again since then
  --   CALL_MARK attempt                   this call of push was made; + PARTLY: of its items only those below count
  --   CALL_MARK attempt ' ' id            such an item
  --   ENDED_MARK id                       the message ended or moved near its due; the score is that time + REPEAT_MS
  --   WINDOW_MARK id                      a push gave it a window: until then it creates no message of this id
  --   OUTCOME_MARK, char(64 + k), id      a message with a window ended at the score - 2^k ms; + DROPPED: it expired
  --   LIFE_MARK id                        the message ended; ATTRS keeps its life under the same name
  -- The fractions are part of the score. META's ended_until is the latest score of ENDED_MARK, rounded up; windows_until
  -- that of WINDOW_MARK.
  local CALL_MARK, ENDED_MARK, WINDOW_MARK, OUTCOME_MARK = '\3', '\4', '\5', '\6'
  local CANCELLED, PUSHED_AGAIN, PARTLY, DROPPED = 0.5, 0.25, 0.5, 0.5
  -- How and when a message ended whose id RECENT remembers.
  local names = {id, WINDOW_MARK .. id}
  for k = 0, 32 do
    names[k + 3] = OUTCOME_MARK .. string.char(64 + k) .. id
  end
  local scores = redis.call('ZMSCORE', RECENT, unpack(names))
  local cancelled, window, how, at = tonumber(scores[1] or 0), tonumber(scores[2] or 0), nil, 0
  for k = 0, 32 do -- 2^32 ms is longer than the longest window
    local score = tonumber(scores[k + 3] or 0)
    local ended = math.floor(score) - 2 ^ k
    if score > now and ended <= now and ended > at then -- the latest, if the id was used again
      how, at = score % 1 == DROPPED and 'expired' or 'finished', ended
    end
  end
  if cancelled > now and cancelled <= now_up + REPEAT_MS + 2 and cancelled % 1 == CANCELLED
    and math.floor(cancelled) - REPEAT_MS >= at then
    how, at = 'cancelled', math.floor(cancelled) - REPEAT_MS
  end
  -- The last event of a life that is kept after the end says it too.
  local life = (layout or '') > '4' and redis.call('HGET', ATTRS, LIFE_MARK .. id)
  if life and not how then
    local ms, word = string.match('\n' .. life, '.*\n(%d+) (%l+)')
    how, at = ({expired = 'expired', cancel = 'cancelled', purge = 'cancelled'})[word] or 'finished', tonumber(ms or 0)
  end
  if not how then return {finish(false, true), {}} end
  window = window > now and window <= now_up + 2592000000 and window or 0
  return {finish(false, true), {}, how, at, window, life or nil}
end
local time
if state == 'ready' then
  time = string.match(ready_entry(id) or '0:', '^%d+')
elseif state == 'leased' then
  time = redis.call('ZSCORE', LEASES, lease_member(id, redis.call('HGET', CLAIMS, id)))
else
  time = redis.call('ZSCORE', state == 'scheduled' and SCHEDULED or DEAD, id)
end
local failures, crashes, _, options, reason = attrs_of(id)
local payload = redis.call('HGET', MESSAGES, id) or ''
local told = {'state', state, 'time_ms', tonumber(time or 0), 'failures', failures, 'crashes', crashes,
  'options', options, 'error', reason, 'payload', most and string.sub(payload, 1, most) or payload}
local following = state == 'leased' and (layout or '') >= '3' and redis.call('HGET', ATTRS, NEXT_MARK .. id)
if following then
  told[#told + 1], told[#told + 2] = 'next_due', tonumber(string.match(following, '^%d+'))
end
if most then
  told[#told + 1], told[#told + 2] = 'payload_bytes', #payload
end
if state == 'leased' then
  local claim = redis.call('HGET', CLAIMS, id)
  told[#told + 1], told[#told + 2] = 'lease', lease_name(claim)
  told[#told + 1], told[#told + 2] = 'since', has_own_lease(claim)
    and tonumber(redis.call('HGET', CLAIMS, SINCE_MARK .. id) or 0)
    or begun(redis.call('HGET', CLAIMS, lease_member(id, claim)), time or 0)
  told[#told + 1], told[#told + 2] = 'to_bury', to_bury(claim) and 1 or 0
end
local life = (layout or '') > '4' and redis.call('HGET', ATTRS, LIFE_MARK .. id)
if life then
  told[#told + 1], told[#told + 2] = 'life', life
end
return {finish(false, true), told}

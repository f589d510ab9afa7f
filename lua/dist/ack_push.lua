#!lua
-- Made by scripts/lua-dist from lua/ack_push.lua and lua/blocks: change these, not this file.
-- ack_push: acks a delivery and stores the messages that follow it, all or nothing (leased -> absent; absent ->
--           scheduled). With a token that is not the current one nothing is stored.
-- KEYS   the ten of the queue
-- ARGV   now | token and id, joined | per message, 1 to 100: id, due, payload, options; as in push
-- Reply  {header, OK | GONE | LOST | REFUSED, {CREATED | EXISTS <state> | REMEMBERED <ms> | FULL <why> | INVALID <why>,
--        ...}}; REFUSED: a message is FULL, INVALID or MOVING: nothing was written, and the delivery is
--        still leased
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, OOM: nothing was written
-- Cost   O(log n) a message
-- Again  GONE; the messages are there

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
-- Returns GONE or LOST; or nil, the id's value in CLAIMS and its original due time, if this token holds it.
local function refusal_of(id, token)
  if (string.byte(id) or 0) < 32 then return 'GONE' end -- the placeholder, a timer, the record of a claim: no message
  local claim = redis.call('HGET', CLAIMS, id)
  if claim and #token == 16 and string.sub(claim, 1, 16) == token then
    return nil, claim, tonumber(string.match(claim, '^%d+', 17)) or 0
  end
  return redis.call('HEXISTS', MESSAGES, id) == 1 and 'LOST' or 'GONE'
end
local ended = {} -- how many ids left the lease of each claim
local function end_lease(id, claim) -- end_claims must follow
  redis.call('HDEL', CLAIMS, id)
  if has_own_lease(claim) then
    redis.call('HDEL', CLAIMS, SINCE_MARK .. id)
    redis.call('ZREM', LEASES, id)
  else
    local token = string.sub(claim, 1, 16)
    ended[token] = (ended[token] or 0) + 1
  end
end
local function end_claims()
  for token, count in pairs(ended) do
    release_from_claim(token, count)
  end
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
-- Remembers for the rest of their windows how these messages ended. Reads first: consumers with the rights of an older
-- release are refused before the first write. Returns what RECENT gets.
local function outcomes_of(ids, fraction)
  local names, outcomes, o, last, score, mark = {}, {}, 0, nil, nil, nil
  for i, id in ipairs(ids) do
    names[i] = WINDOW_MARK .. id
  end
  for i, ends in ipairs(#ids > 0 and redis.call('ZMSCORE', RECENT, unpack(names)) or {}) do
    if ends ~= last then -- neighbours often share the end of their window
      local left = (tonumber(ends) or 0) - now
      last, score = ends, nil
      if left > 0 and left <= 2592000000 then
        local k = math.max(0, math.ceil(math.log(left) / math.log(2) - 1e-9))
        score, mark = string.format('%.1f', now + 2 ^ k + fraction), OUTCOME_MARK .. string.char(64 + k)
      end
    end
    if score then
      outcomes[o + 1], outcomes[o + 2], o = score, mark .. ids[i], o + 2
    end
  end
  return outcomes
end
-- One or three zeros before the due in an id's claim say that a window remembers the id (two alone: to_bury); release
-- 0.1 reads the same due. Scripts before version 19 of the library wrote a w behind the due instead.
local function has_window(claim)
  return #(string.match(claim, '^(0*)%d', 17) or '') % 2 == 1 or string.find(claim, 'w', 17, true)
end
-- ATTRS keeps the message that follows a delivery (on_conflict=next) under this byte and the id:
-- '<due> <options>', LF, payload.
local NEXT_MARK = '\3'
local function due_ms(text) -- '<unix ms>' or '+<delay ms>' as unix ms; nil for other text and beyond 100 years
  local ahead = string.byte(text) == 43
  if #text > (ahead and 16 or 15) or not string.find(text, '^%+?%d+$') then return nil end
  local due = tonumber(text) + (ahead and now_up or 0)
  return due <= now_up + 3155760000000 and due or nil
end
local token, parent = string.sub(ARGV[2] or '', 1, 16), string.sub(ARGV[2] or '', 17)
if #ARGV < 6 or #ARGV > 402 or #ARGV % 4 ~= 2 or #token ~= 16 or parent == '' then
  return redis.error_reply('BADARGS ack_push takes now, token and id joined, then id, due, payload, options for 1 to '
    .. '100 messages')
end
local attempt = ''
-- The request of push and upsert, and what both read before they judge it.
--   flight, away         see that block
--   count, ids           how many messages; their ids
--   attempt              the verb sets it before; until_text and until_ms: its first part
--   room, max_payload    limits of the queue; room: how many messages more it may hold
--   largest              META's largest_payload_bytes, at least 4,096
--   found[i]             true or the payload if message i is in the queue; else false
--   plain                true if no id has a control byte; false: look at each
--   ended[i], call_mark  what RECENT holds of id i and of this call, if it may matter
--   too_late             true if the attempt is past its until, or claims one too far ahead
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
local count = (#ARGV - 2) / 4
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
local max_messages, max_payload, ended_until, windows_until =
  unpack(redis.call('HMGET', META, 'max_messages', 'max_payload_bytes', 'ended_until', 'windows_until'))
local room = max_messages and tonumber(max_messages) + 1 - redis.call('HLEN', MESSAGES) or math.huge
if max_messages and layout and layout > '3' then -- timers of schedules take no places
  room = room + (tonumber(redis.call('HGET', META, 'schedules') or '') or 0)
end
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
local windows = nil -- by message: when the window of its id ends, or nil
if windows_until and (not string.find(windows_until, '^%d+$') or tonumber(windows_until) > now) then
  local names = {}
  for i = 1, count do
    names[i] = WINDOW_MARK .. ids[i]
  end
  windows = redis.call('ZMSCORE', RECENT, unpack(names))
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
local function state_of(id) -- without ZSCORE, to which a consumer has no right
  if redis.call('HEXISTS', CLAIMS, id) == 1 then return 'leased' end
  if redis.call('ZMSCORE', SCHEDULED, id)[1] then return 'scheduled' end
  return redis.call('ZMSCORE', DEAD, id)[1] and 'dead' or 'ready'
end
local refusal, claim = refusal_of(parent, token)
if refusal then return {finish(false), refusal, {}} end
redis.call('HSETNX', MESSAGES, '\0' .. string.rep('-', 70), '') -- consumers of an older release have no right to it
local windowed = has_window(claim) and outcomes_of({parent}, 0) or {}
if (layout or '') < '3' or redis.call('HEXISTS', ATTRS, NEXT_MARK .. parent) == 0 then
  room = room + 1 -- of the delivery; a next message takes it
end
local verb, move, follow, create_queue = 'ack_push', nil, nil, nil -- it moves no message, and the queue exists
-- Keys of states that a new message cannot have. A call that judges messages one by one may write them.
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('ZCARD', DEAD)
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
-- Both are nil in a queue of an older layout: a call there pays one comparison.
local note, end_lives
if (layout or '') > '4' then
  -- ATTRS keeps the life of a message under this byte and the id: '<ms> <word> <due> <began> <node> <text>', a line for
  -- each event, the latest last; what is unknown is -, or left out at the end. RECENT has the same name of a message that
  -- has ended, until its life is forgotten.
  local LIFE_MARK = '\7'
  -- META's life_keep_ms: how long the life of a message is kept after its end; without it no event is added.
  local keep_ms = tonumber(redis.call('HGET', META, 'life_keep_ms') or '')
  if (keep_ms or 0) > 0 then -- end_lives writes it
    redis.call('ZCARD', RECENT)
  end
  local function with_event(life, word, due, attempt, text)
    local line = int(now) .. ' ' .. word .. ' ' .. (attempt or due or '-')
    if text then
      line = line .. (attempt and ' ' or ' - - ') .. string.gsub(string.sub(text, 1, 200), '%c', ' ')
    end
    if not life then return line end
    local _, more = string.gsub(life, '\n', '')
    return (more < 19 and life or string.match(life, '\n(.*)$')) .. '\n' .. line
  end
  -- Adds an event to the life of a message that is in the queue.
  --   due      the due time that it got, as text; or nil
  --   attempt  of a delivery that ends: what attempt_of returned
  --   starts   whether the life begins with this event: a life of an earlier message of the id is forgotten
  note = function(id, word, due, attempt, text, starts)
    if keep_ms then
      local life = not starts and redis.call('HGET', ATTRS, LIFE_MARK .. id)
      redis.call('HSET', ATTRS, LIFE_MARK .. id, with_event(life, word, due, attempt, text))
    end
  end
  -- Of messages that left the queue: adds the last event and keeps their lives for life_keep_ms; those of a cancel for
  -- 12 s at least, for an undo. Without a word, or while RECENT is half full, it forgets them.
  --   attempt  a function that returns attempt_of an id; or nil
  end_lives = function(ids, word, attempt)
    local names, lives, scores = {}, {}, {}
    for i, id in ipairs(ids) do
      names[i] = LIFE_MARK .. id
    end
    local ms = word and keep_ms or 0
    if word == 'cancel' and keep_ms then
      ms = math.max(ms, REPEAT_MS)
    end
    local most = ms > 0 and (tonumber(redis.call('HGET', META, 'max_remembered') or '') or 1000000)
    if not most or 2 * (redis.call('ZCARD', RECENT) + #ids) > most then
      return redis.call('HDEL', ATTRS, unpack(names))
    end
    for i, life in ipairs(redis.call('HMGET', ATTRS, unpack(names))) do
      lives[2 * i - 1], lives[2 * i] = names[i], with_event(life, word, nil, attempt and attempt(ids[i]))
      scores[2 * i - 1], scores[2 * i] = int(now_up + ms), names[i]
    end
    redis.call('HSET', ATTRS, unpack(lives))
    redis.call('HINCRBY', META, 'ended_lives', redis.call('ZADD', RECENT, unpack(scores)))
    local function trim_recent(count) -- removes at most `count` names of RECENT whose time is over
      local over = math.min(redis.call('ZCOUNT', RECENT, '-inf', int(now)), count)
      if over > 0 then
        if (layout or '') > '4' and (redis.call('HGET', META, 'ended_lives') or '0') ~= '0' then
          -- Of the first `over` names of RECENT, whose time is over. If the id is in the queue again, its life goes on. META's
          -- ended_lives counts such names: mostly there are none.
          local lives, ended = {}, 0
          for _, name in ipairs(redis.call('ZRANGE', RECENT, '0', int(over - 1))) do
            if string.byte(name) == 7 then
              ended = ended + 1
              if redis.call('HEXISTS', MESSAGES, string.sub(name, 2)) == 0 then
                lives[#lives + 1] = name
              end
            end
          end
          if #lives > 0 then
            redis.call('HDEL', ATTRS, unpack(lives))
          end
          if ended > 0 then
            redis.call('HINCRBY', META, 'ended_lives', int(-ended))
          end
        end
        redis.call('ZREMRANGEBYRANK', RECENT, '0', int(over - 1))
      end
    end
    trim_recent(#ids)
  end
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
-- The options of a message: words NAME=VALUE.
local ranges = {max_attempts = 1000000, cost = 1000000, window = 2592000000, max_wait = 3155760000000,
  undo = 9999999999999}
local option_forms = 'one of max_attempts=1..1000000, on_conflict=keep|reschedule|replace|next, '
  .. 'traceparent=00-TRACE-SPAN-FLAGS, expires=MS|+MS, on_expire=dead|drop, cost=1..1000000, window=1..2592000000 ms, '
  .. 'max_wait=1..3155760000000 ms, reuse, revive, undo=MS'
local function read_options(text) -- the values by name; or nil and the reason
  local asked = {on_conflict = 'keep'}
  for word in string.gmatch(text, '[^ ]+') do
    local name, value = string.match(word, '^([%l_]+)=(.+)$')
    if word == 'reuse' or word == 'revive' then
      asked[word] = true
    elseif ranges[name or ''] then
      local number = string.find(value, '^%d+$') and tonumber(value)
      if not number or number < 1 or number > ranges[name] then
        return nil, name .. ' must be 1 to ' .. int(ranges[name])
      end
      asked[name] = int(number)
    elseif name == 'on_conflict' and (value == 'keep' or value == 'reschedule' or value == 'replace'
      or value == 'next') then
      asked.on_conflict = value
    elseif name == 'expires' then
      asked.expires, asked.expires_ms = value, due_ms(value)
      if not asked.expires_ms or string.find(value, '^%+0*$') then
        return nil, 'expires must be + and 1 to 3155760000000 ms after the due time, or unix ms that have not passed'
      end
    elseif name == 'on_expire' and (value == 'drop' or value == 'dead') then
      asked.on_expire = value
    elseif name == 'traceparent' then
      local trace, span = string.match(value, '^00%-([0-9a-f]+)%-([0-9a-f]+)%-[0-9a-f][0-9a-f]$')
      if not trace or #trace ~= 32 or #span ~= 16 or not string.find(trace, '[^0]')
        or not string.find(span, '[^0]') then
        return nil, 'option: ' .. option_forms
      end
      asked.traceparent = value
    else
      return nil, 'option: ' .. option_forms
    end
  end
  if asked.on_expire and not asked.expires then return nil, 'on_expire needs expires' end
  if asked.max_wait and asked.on_conflict == 'keep' then
    return nil, 'max_wait needs on_conflict=reschedule, replace or next'
  end
  if asked.revive and asked.on_conflict ~= 'replace' and asked.on_conflict ~= 'next' then
    return nil, 'revive needs on_conflict=replace or next'
  end
  asked.due_by = asked.max_wait and int(now_up + asked.max_wait)
  local words = {} -- as ATTRS keeps them, in one order
  for _, name in ipairs({'max_attempts', 'traceparent', 'expires', 'on_expire', 'cost', 'window', 'due_by'}) do
    words[#words + 1] = asked[name] and name .. '=' .. asked[name]
  end
  asked.stored = table.concat(words, ' ')
  return asked
end
local function live(score)
  score = tonumber(score)
  return score and score > now and score <= now_up + REPEAT_MS + 1 and score
end
local function applied(i) -- whether RECENT holds that an earlier try of this call was applied to message i
  return call_mark and (call_mark % 1 == 0 or redis.call('ZSCORE', RECENT, call .. ' ' .. ids[i]))
end
local function finished(i) -- FINISHED, if this call is a repetition and the message ended since its first try
  if applied(i) then return 'FINISHED' end
  local last = until_ms and ended and ended[i] and live(ended[i])
  if not last then return nil end
  -- Until is the first try + 10,000 ms, with a fraction. Half a microsecond allows for the rounding of scores.
  local first = (tonumber(string.match(attempt, '^[%d.]+')) or until_ms) - 10000 + 0.0005
  return last - REPEAT_MS > first and 'FINISHED ' .. string.format('%.3f', last - REPEAT_MS)
end
local function remembered(i) -- until when a window remembers the id of message i
  local score = tonumber(windows and windows[i] or 0)
  return score > now and score <= now_up + 2592000000 and score
end
local function forget_cancel(i) -- a repeated cancel of this id must not take the new message
  if not (ended and ended[i]) then return end
  local cancelled = tonumber(redis.call('ZMSCORE', RECENT, ids[i])[1] or 0)
  if cancelled > now and cancelled % 1 == CANCELLED then
    remember(string.format('%.2f', math.floor(cancelled) + PUSHED_AGAIN), ids[i])
  end
end
local remembers, max_remembered, window_end = nil, nil, 0 -- if a message has a window
local burst -- of the queue's rate, if a message has a cost
local function invalid(id, due, payload, asked, why)
  if #id < 1 or #id > 200 or not plain and string.find(id, '%c') then
    return 'INVALID id must be 1 to 200 bytes, none of them a control byte'
  elseif not due then
    return 'INVALID due must be unix ms, or + and a delay in ms, at most 100 years ahead'
  elseif #payload > max_payload then
    return 'INVALID payload has ' .. #payload .. ' bytes, the limit of this queue is ' .. int(max_payload)
  elseif not asked then
    return 'INVALID ' .. why
  elseif move and asked.on_conflict == 'keep' then
    return 'INVALID upsert takes on_conflict=reschedule or on_conflict=replace: use push to keep a message'
  elseif not move and asked.on_conflict ~= 'keep' then
    return 'INVALID push takes no on_conflict=' .. asked.on_conflict .. ': use upsert'
  elseif asked.max_wait and due > now_up + asked.max_wait then
    return 'INVALID max_wait must be at least the delay'
  elseif asked.on_conflict == 'next' and (layout or '') < '3' then
    return 'INVALID on_conflict=next needs layout 3: once all nodes know it, run dueq configure ' .. queue
      .. ' --layout 3'
  elseif asked.cost then
    burst = burst or tonumber(string.match(redis.call('HGET', META, 'rate') or '', '(%d+)$') or 1000000)
    if tonumber(asked.cost) > burst then
      return 'INVALID cost must be 1 to ' .. int(burst) .. ', the burst of the rate'
    end
  end
end
-- Not part of `invalid`: a repetition of a call that created the message comes later, and must not be refused.
local function expired_already(due, asked)
  local absolute = asked.expires and string.byte(asked.expires) ~= 43 and asked.expires_ms
  if absolute and (absolute <= now_up or absolute < due) then
    return 'INVALID expires must be ahead, and not before the due time'
  end
end
local no_options, asked, why, asked_words = {on_conflict = 'keep', stored = ''}, nil, nil, nil
local function one(i)
  local id, text, payload, words = ids[i], ARGV[4 * i], ARGV[4 * i + 1], ARGV[4 * i + 2]
  local due = due_of[text]
  if due == nil then
    due = due_ms(text) or false
    due_of[text], due_text[text] = due, due and (string.byte(text) == 43 and int(due) or text)
  end
  if words == '' then
    asked = no_options
  elseif words ~= asked_words then -- neighbours often share their options
    asked, why = read_options(words)
  end
  asked_words = words
  local refusal = invalid(id, due, payload, asked, why) or too_late and 'EXPIRED'
  if refusal then return refusal end
  if found[i] or taken[id] then
    local state = taken[id] and 'scheduled' or state_of(id)
    local follows = move and asked.on_conflict == 'next'
    if follows and applied(i) then -- a repetition changes nothing: another call may have replaced the message since
      return state == 'leased' and 'NEXT' or state == 'dead' and 'EXISTS dead' or 'MOVED'
    elseif follows and state == 'dead' and not asked.revive then
      call_mark_suffices = false -- a repetition may still be applied, after a requeue
      return 'EXISTS dead'
    end
    if not move or state == 'leased' and not follows or state == 'dead' and (not asked.revive or finished(i)) then
      noted[#noted + 1] = id
      return 'EXISTS ' .. state
    end
    local late = asked.on_conflict ~= 'reschedule' and expired_already(due, asked)
    if late then return late end
    if follows then
      noted[#noted + 1] = id
    end
    if state == 'leased' then
      follow(id, due, payload, asked.stored)
      return 'NEXT'
    end
    d, dues[d + 1], dues[d + 2], taken[id] = d + 2, move(id, state, due, payload, asked), id, true
    return 'MOVED'
  end
  local earlier = finished(i)
  if asked.undo and not earlier then -- of the cancel at that time, and nothing happened to the id since
    local cancelled = tonumber(redis.call('ZMSCORE', RECENT, id)[1] or 0)
    earlier = (cancelled <= now or cancelled ~= asked.undo + REPEAT_MS + CANCELLED) and 'USED'
  end
  if not (earlier or asked.reuse) and remembered(i) then
    earlier = 'REMEMBERED ' .. int(remembered(i))
  end
  if flight or probes then
    earlier = away(id, earlier)
    earlier = earlier ~= 'ABSENT' and earlier
  end
  if earlier == 'AWAY' then -- the caller pushes elsewhere: a cancel from before is not the last word any more
    forget_cancel(i)
  end
  if earlier then return earlier end
  local late = expired_already(due, asked)
  if late then return late end
  if created >= room then return 'FULL this queue may hold ' .. max_messages .. ' messages' end
  if asked.window then
    remembers = remembers or redis.call('ZCOUNT', RECENT, '(' .. now, '(inf')
    max_remembered = max_remembered or tonumber(redis.call('HGET', META, 'max_remembered') or '') or 1000000
    if remembers >= max_remembered then return 'FULL this queue may remember ' .. int(max_remembered) .. ' ids' end
    remembers, window_end = remembers + 1, math.max(window_end, now_up + asked.window)
    remember(int(now_up + asked.window), WINDOW_MARK .. id)
  end
  forget_cancel(i)
  p, payloads[p + 1], payloads[p + 2] = p + 2, id, payload
  d, dues[d + 1], dues[d + 2] = d + 2, due_text[text], id
  created, taken[id], options[id] = created + 1, true, asked.stored ~= '' and asked.stored or nil
  longest = math.max(longest, #payload)
  if due - now <= REPEAT_MS or asked.on_conflict == 'next' then
    noted[#noted + 1] = id
  end
  return 'CREATED'
end
for i = 1, count do
  replies[i] = one(i)
  call_mark_suffices = call_mark_suffices and (replies[i] == 'CREATED' or string.find(replies[i], '^EXISTS') ~= nil)
end
for i, reply in ipairs(replies) do
  if ids[i] == parent then
    reply = 'INVALID a message that follows a delivery needs another id'
    replies[i] = reply
  end
  if string.find(reply, '^INVALID') or string.find(reply, '^FULL') or reply == 'MOVING' then
    refusal = 'REFUSED'
  end
end
if refusal then return {finish(false), refusal, replies} end
if end_lives then
  local attempt_of
  -- '<due> <began> <node>' of a delivery, before its lease ends; - for what is unknown.
  -- When a delivery began, in ms; 0 if that is unknown: scripts before version 27 of the library claimed or extended it.
  -- CLAIMS has it of an extended delivery, under SINCE_MARK and the id. Any other began when its claim's lease did.
  local function begun(record, deadline) -- record: what CLAIMS has under LEASE_MARK and the token
    local lease_ms = string.match(record or '', '^\3(%d+)\n')
    return lease_ms and math.max(0, deadline - lease_ms) or 0
  end
  local begins = {} -- by token: when its claim's lease began
  attempt_of = function(id, claim)
    local token = string.sub(claim, 1, 16)
    local began = has_own_lease(claim) and tonumber(redis.call('HGET', CLAIMS, SINCE_MARK .. id) or 0) or begins[token]
    if not began then -- the record names all ids of the claim: it is read once
      local lease = LEASE_MARK .. token
      began = begun(redis.call('HGET', CLAIMS, lease), redis.call('ZSCORE', LEASES, lease) or 0)
      begins[token] = began
    end
    local due = tonumber(string.match(claim, '^%d+', 17) or '')
    return (due and int(due) or '-') .. ' ' .. (began > 0 and int(began) or '-') .. ' '
      .. (string.match(claim, '^@(%w%w%w%w%w%w%w)') or '-')
  end
  end_lives({parent}, 'ack_push', function(id) return attempt_of(id, claim) end)
end
end_lease(parent, claim)
redis.call('HDEL', MESSAGES, parent)
redis.call('HDEL', ATTRS, parent)
redis.call('HINCRBY', META, 'acked', 1)
-- ATTRS keeps the message that follows a delivery (on_conflict=next) under this byte and the id:
-- '<due> <options>', LF, payload.
local NEXT_MARK = '\3'
if (layout or '') >= '3' then -- writes nothing; consumers with the rights of an older release are refused before
  redis.call('HSETNX', MESSAGES, '\0' .. string.rep('-', 70), '')
end
local function start_next(id) -- makes it the message of this id; returns its due as text, nil if there is none
  local kept = (layout or '') >= '3' and redis.call('HGET', ATTRS, NEXT_MARK .. id) or ''
  local due, options, at = string.match(kept, '^(%d+) ([^\n]*)\n()') -- a pattern for the payload would read each byte
  if not due then return nil end
  redis.call('HDEL', ATTRS, NEXT_MARK .. id)
  redis.call('HDEL', MESSAGES, id)
  redis.call('HSETNX', MESSAGES, id, string.sub(kept, at))
  set_attrs(id, 0, 0, nil, options, '')
  redis.call('ZADD', SCHEDULED, due, id)
  if note then
    note(id, 'next', due)
  end
  return due
end
start_next(parent)
for i = 1, p, 2 do
  redis.call('HSETNX', MESSAGES, payloads[i], payloads[i + 1])
end
payloads = {}
changed = d > 0
if changed then
  if create_queue then
    create_queue()
  end
  if #payloads > 0 then
    redis.call('HSET', MESSAGES, unpack(payloads))
  end
  redis.call('ZADD', SCHEDULED, unpack(dues))
end
local stored, plain_ids, expires, last_words, text, s = {}, {}, false, nil, nil, 0
for id, words in pairs(options) do
  if words == '' then
    plain_ids[#plain_ids + 1] = id
  else
    if words ~= last_words then
      last_words, text, expires = words, '0 0 - ' .. words .. '\n', expires or string.find(words, 'expires=', 1, true)
    end
    s, stored[s + 1], stored[s + 2] = s + 2, id, text
  end
end
if #stored > 0 then
  redis.call('HSET', ATTRS, unpack(stored))
end
if #plain_ids > 0 then -- of replacements
  redis.call('HDEL', ATTRS, unpack(plain_ids))
end
if note then -- dues has those that were created or moved, in the order of the call
  local k = 0
  for i, id in ipairs(ids) do
    if dues[k + 2] == id and (replies[i] == 'CREATED' or replies[i] == 'MOVED') then
      local undoes = string.find(ARGV[4 * i + 2], 'undo=', 1, true)
      note(id, undoes and 'undo' or verb, dues[k + 1], nil, nil, replies[i] == 'CREATED' and not undoes)
      k = k + 2
    end
  end
end
if expires then -- claim looks for messages that have expired
  redis.call('HSET', META, 'expiring', '1', 'selective', '1')
end
if window_end > (tonumber(windows_until or '') or 0) then
  redis.call('HSET', META, 'windows_until', int(window_end))
end
for i = 1, #windowed do
  memory[#memory + 1] = windowed[i]
end
memory = memory or {}
if remember_call and until_ms then
  memory[#memory + 1], memory[#memory + 2] = until_text, call
end
if #memory > 0 then
  local function trim_recent(count) -- removes at most `count` names of RECENT whose time is over
    local over = math.min(redis.call('ZCOUNT', RECENT, '-inf', int(now)), count)
    if over > 0 then
      if (layout or '') > '4' and (redis.call('HGET', META, 'ended_lives') or '0') ~= '0' then
        -- Of the first `over` names of RECENT, whose time is over. If the id is in the queue again, its life goes on. META's
        -- ended_lives counts such names: mostly there are none.
        local lives, ended = {}, 0
        for _, name in ipairs(redis.call('ZRANGE', RECENT, '0', int(over - 1))) do
          if string.byte(name) == 7 then
            ended = ended + 1
            if redis.call('HEXISTS', MESSAGES, string.sub(name, 2)) == 0 then
              lives[#lives + 1] = name
            end
          end
        end
        if #lives > 0 then
          redis.call('HDEL', ATTRS, unpack(lives))
        end
        if ended > 0 then
          redis.call('HINCRBY', META, 'ended_lives', int(-ended))
        end
      end
      redis.call('ZREMRANGEBYRANK', RECENT, '0', int(over - 1))
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
end_claims()
return {finish(true), 'OK', replies}

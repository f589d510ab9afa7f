#!lua
-- Made by scripts/lua-dist from lua/run_now.lua and lua/blocks: change these, not this file.
-- run_now: makes scheduled messages due now, unless they are due already.
-- KEYS   the ten of the queue
-- ARGV   now | 1 to 1,000 ids
-- Reply  {header, {MOVED <due ms> | ALREADY | LEASED | DEAD | ABSENT | MOVING | AWAY, ...}}
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
--   WINDOW_MARK id                      a push gave it a window: until then it creates no message of this id
--   OUTCOME_MARK, char(64 + k), id      a message with a window ended at the score - 2^k ms; + DROPPED: it expired
--   LIFE_MARK id                        the message ended; ATTRS keeps its life under the same name
-- The fractions are part of the score. META's ended_until is the latest score of ENDED_MARK, rounded up; windows_until
-- that of WINDOW_MARK.
local CALL_MARK, ENDED_MARK, WINDOW_MARK, OUTCOME_MARK = '\3', '\4', '\5', '\6'
local CANCELLED, PUSHED_AGAIN, PARTLY, DROPPED = 0.5, 0.25, 0.5, 0.5
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
local memory, memory_ms = {}, string.format('%.3f', now_us / 1000 + REPEAT_MS)
local function remember(score, name)
  memory[#memory + 1] = score
  memory[#memory + 1] = name
end
local function remember_end(id) remember(memory_ms, ENDED_MARK .. id) end
local function write_memory(removed) -- removed: by id, what was cancelled or purged, which ends its window
  if #memory == 0 then return end
  local latest, windows_until = unpack(redis.call('HMGET', META, 'ended_until', 'windows_until'))
  latest = latest or '0'
  if removed and windows_until then
    local ended = {}
    for id in pairs(removed) do
      ended[#ended + 1] = '0' -- not now: the clock may go back
      ended[#ended + 1] = WINDOW_MARK .. id
    end
    redis.call('ZADD', RECENT, 'XX', unpack(ended))
  end
  local later = string.find(latest, '^%d+$') and now_up + REPEAT_MS + 1 - tonumber(latest) or 0
  redis.call('ZADD', RECENT, unpack(memory))
  if later > 0 then
    redis.call('HINCRBY', META, 'ended_until', int(later))
  end
  trim_recent(#memory)
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
if #ARGV < 2 or #ARGV > 1001 then return redis.error_reply('BADARGS run_now takes now, then 1 to 1000 ids') end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES)
redis.call('ZCARD', DEAD); redis.call('ZCARD', RECENT)
local replies, changed = {}, 0
for i = 2, #ARGV do
  local id = ARGV[i]
  local state = state_of(id)
  if state == 'ready' then
    replies[i - 1] = 'ALREADY'
  elseif state == 'absent' then
    replies[i - 1] = away(id)
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
    if note then
      note(id, 'run_now', int(now))
    end
    replies[i - 1], changed = 'MOVED ' .. int(now), changed + 1
  end
end
write_memory()
return {finish(changed > 0), replies}

#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/retry.lua and lua/blocks: change these, not this file.
-- retry: counts a failure and schedules the next attempt (leased -> scheduled), or none at the limit (leased -> dead).
--        The limit is the message's max_attempts, else the queue's, else 20. A message that expires before its next
--        attempt is dead at once, or dropped if it asks for it (leased -> absent).
-- KEYS   the ten of the queue
-- ARGV   now | per delivery, 1 to 1,000: id, token, after in ms, error (its first 1,024 bytes are kept)
-- Reply  {header, {SCHEDULED <due ms> | DEAD | DROPPED | GONE | LOST | INVALID <why>, ...}}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log n) a delivery
-- Again  LOST

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
local function due_ms(text) -- '<unix ms>' or '+<delay ms>' as unix ms; nil for other text and beyond 100 years
  local ahead = string.byte(text) == 43
  if #text > (ahead and 16 or 15) or not string.find(text, '^%+?%d+$') then return nil end
  local due = tonumber(text) + (ahead and now_up or 0)
  return due <= now_up + 3155760000000 and due or nil
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
-- As `life`, for scripts that end deliveries: attempt_of, too.
local note, end_lives, attempt_of
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
end
-- Ends the delivery of a message that an operator wants dead, if it is one.
-- Zeros before the due in an id's claim are flags: one for a window, two for a message that dies when this lease ends.
local function to_bury(claim) return string.find(claim, '^00%d', 17) ~= nil end
local buried = 0
local function bury_marked(id, claim, failures, crashes, options, reason)
  if not to_bury(claim) then return false end
  local why = 'buried when its lease ended' .. (reason ~= '' and ': ' .. reason or '')
  set_attrs(id, failures, crashes, nil, options, string.sub(why, 1, 1024))
  redis.call('ZADD', DEAD, now, id)
  buried = buried + 1
  return true
end
-- Options say when a message expires: expires=MS, or expires=+MS from its due; expires_by=MS since a retry or a snooze
-- gave it a later due, which does not count.
local function expiry_of(options, due)
  local fixed = string.match(options, 'expires_by=(%d+)')
  if fixed then return tonumber(fixed) end
  local relative, ms = string.match(options, 'expires=(%+?)(%d+)')
  return ms and tonumber(ms) + (relative == '+' and due or 0) or math.huge
end
local function fix_expiry(options, due) -- as options say it, whatever due the message gets
  local moves = string.find(options, 'expires=+', 1, true) and not string.find(options, 'expires_by=', 1, true)
  return moves and options .. ' expires_by=' .. int(expiry_of(options, due)) or options
end
-- Ends a delivery with a later due: the message waits again. If it expires before that, it dies at once with this
-- error, or is dropped.
local expired, expired_dead = 0, 0
-- Deliveries with a window, by id: `find_windowed` looks for them, if a window may last. One read of RECENT refuses
-- consumers with the rights of an older release before the first write. dropped: those that expired.
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
local windowed, dropped = {}, {}
local function find_windowed(count, first, step) -- the ids are ARGV[first], ARGV[first + step] and so on
  local ids = {}
  for i = 1, count do
    ids[i] = ARGV[first + (i - 1) * step]
  end
  for i, claim in ipairs(redis.call('HMGET', CLAIMS, unpack(ids))) do
    windowed[ids[i]] = claim and has_window(claim) and true or nil
  end
  if next(windowed) then
    redis.call('ZMSCORE', RECENT, ids[1])
  end
end
local function later(id, due, claimed_due, failures, crashes, options, reason)
  local expiry = expiry_of(options, claimed_due)
  if due > expiry then
    expired = expired + 1
    if string.find(options, 'on_expire=drop', 1, true) then
      if windowed[id] then
        dropped[#dropped + 1] = id
      end
      redis.call('HDEL', MESSAGES, id)
      redis.call('HDEL', ATTRS, id)
      if end_lives then
        end_lives({id}, 'expired')
      end
      return 'DROPPED'
    end
    expired_dead = expired_dead + 1
    local why = 'expires before it is due again' .. (reason ~= '' and ': ' .. reason or '')
    set_attrs(id, failures, crashes, nil, options, string.sub(why, 1, 1024))
    redis.call('ZADD', DEAD, now, id)
    return 'DEAD'
  end
  set_attrs(id, failures, crashes, nil, fix_expiry(options, claimed_due), reason)
  redis.call('ZADD', SCHEDULED, due, id)
  return 'SCHEDULED ' .. int(due)
end
local function count_expired()
  if expired == 0 then return end
  local outcomes = outcomes_of(dropped, DROPPED)
  if #outcomes > 0 then
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
    redis.call('ZADD', RECENT, unpack(outcomes))
    trim_recent(#outcomes)
  end
  redis.call('HINCRBY', META, 'expired', expired)
  if expired_dead > 0 then
    redis.call('HINCRBY', META, 'died', expired_dead)
  end
end
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
local count = (#ARGV - 1) / 4
if count < 1 or count > 1000 or count % 1 ~= 0 then
  return redis.error_reply('BADARGS retry takes now, then id, token, after ms, error for 1 to 1000 deliveries')
end
local queue_limit, windows_until = unpack(redis.call('HMGET', META, 'max_attempts', 'windows_until'))
queue_limit = tonumber(queue_limit or 20)
if windows_until then
  find_windowed(count, 2, 4)
end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES); redis.call('ZCARD', DEAD)
local replies, changed, died = {}, 0, 0
for i = 1, count do
  local id, due = ARGV[4 * i - 2], due_ms('+' .. ARGV[4 * i])
  local refusal, claim, claimed_due = refusal_of(id, ARGV[4 * i - 1])
  if not due then
    replies[i] = 'INVALID after must be a delay in ms, at most 100 years'
  elseif refusal then
    replies[i] = refusal
  else
    local failures, crashes, _, options = attrs_of(id)
    local reason = string.sub(ARGV[4 * i + 1], 1, 1024)
    failures, changed = failures + 1, changed + 1
    if note then
      note(id, 'retry', nil, attempt_of(id, claim), reason)
    end
    end_lease(id, claim)
    local next_due = start_next(id)
    if next_due then
      replies[i] = 'SCHEDULED ' .. next_due
    elseif bury_marked(id, claim, failures, crashes, options, reason) then
      replies[i], died = 'DEAD', died + 1
    elseif failures >= tonumber(string.match(options, 'max_attempts=(%d+)') or queue_limit) then
      set_attrs(id, failures, crashes, nil, options, reason)
      redis.call('ZADD', DEAD, now, id)
      replies[i], died = 'DEAD', died + 1
    else
      replies[i] = later(id, due, claimed_due, failures, crashes, options, reason)
    end
  end
end
if changed - died - expired > 0 then
  redis.call('HINCRBY', META, 'retried', changed - died - expired)
end
count_expired()
if died > 0 then
  redis.call('HINCRBY', META, 'died', died)
end
end_claims()
return {finish(changed > 0), replies}

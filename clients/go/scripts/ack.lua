#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/ack.lua and lua/blocks: change these, not this file.
-- ack: ends deliveries that were handled (leased -> absent; -> scheduled if a push kept a next message).
-- KEYS   the ten of the queue
-- ARGV   now | per claim: token, how many ids follow, ids; 1 to 1,000 ids in all
-- Reply  {header, {OK | GONE | LOST, ...}}, one for each id; one OK alone if it is the result of all
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(1) a delivery, O(log n) one with a window or a next message, O(log leases) a claim that ends and a delivery
--        that was extended
-- Again  GONE

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
-- A claim has one lease for everything that it granted. First bytes of its names, before the token: LEASE_MARK of the
-- lease in LEASES and of the granted ids in CLAIMS; COUNT_MARK of the number of ids still under the lease, in CLAIMS.
-- SINCE_MARK, before an id: when the delivery of an extended message began, in CLAIMS. The audit of release 0.1 passes
-- over such a name.
local LEASE_MARK, COUNT_MARK, SINCE_MARK = '\1', '\2', '\0='
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
local ids, groups, at = {}, {}, 2 -- groups: where in ARGV the token and the number of ids of each claim are
while at <= #ARGV do
  local count = tonumber(ARGV[at + 1])
  if not count or count < 1 or count % 1 ~= 0 or at + 1 + count > #ARGV or #ids + count > 1000 then
    ids = {}
    break
  end
  if at == 2 then
    ids = {unpack(ARGV, 4, 3 + count)} -- mostly all ids of the call
  else
    for i = at + 2, at + 1 + count do
      ids[#ids + 1] = ARGV[i]
    end
  end
  groups[#groups + 1], at = at, at + 2 + count
end
if #ids == 0 then
  return redis.error_reply(
    'BADARGS ack takes now, then token, number of ids, ids for one or more claims, 1 to 1000 ids in all')
end
local claims = redis.call('HMGET', CLAIMS, unpack(ids))
local has_attrs = redis.call('HLEN', ATTRS) > 1
local start, end_acked, has_lives
if has_attrs and (layout or '') >= '3' then
  local keep_ms, nexts = nil, '1'
  if layout > '4' then
    has_lives, keep_ms, nexts = true, unpack(redis.call('HMGET', META, 'life_keep_ms', 'nexts'))
  end
  if nexts or (tonumber(keep_ms or '') or 0) > 0 then -- making functions costs as much as a command
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
    start, end_acked = nexts and start_next, end_lives
  end
end
local replies, acked, n = {'OK'}, ids, #ids
-- Fast path: all ids are under the leases of their claims, and windows remember all or none: no + at the end of what
-- CLAIMS holds, in each or in none a 0 before the due. HDEL finds an id that is given twice.
local sound, windows, i = true, nil, 0
for _, group in ipairs(groups) do
  local token, claim = ARGV[group], nil
  for _ = 1, ARGV[group + 1] do
    i = i + 1
    if claims[i] ~= claim then -- neighbours often share their claim and its due
      claim = claims[i]
      local last = claim and #token == 16 and string.find(claim, token, 1, true) == 1 and string.byte(claim, -1) or 0
      local window = last > 0 and string.byte(claim, 17) == 48 and string.find(claim, '^0%d', 17) ~= nil
      if windows == nil then
        windows = window
      end
      if last < 48 or last > 57 or window ~= windows or (string.byte(ids[i]) or 0) < 32 then
        sound = false
        break
      end
    end
  end
end
local outcomes, extended, ended -- what RECENT gets; ids with a lease of their own; by claim, how many leave its lease
local remember -- makes outcomes; nil if no window remembers an id
if windows or not sound then
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
  remember = outcomes_of
  outcomes = sound and outcomes_of(ids, 0)
end
-- The first write is on MESSAGES, for that key was not read. What leaves it is acked, in either path.
local deleted = sound and redis.call('HDEL', MESSAGES, unpack(ids)) and redis.call('HDEL', CLAIMS, unpack(ids))
if deleted ~= n then -- one by one; each sees what the earlier ones did
  -- Extend gives an id a lease of its own. A + at the end of the id's claim says so.
  local function has_own_lease(claim) return string.byte(claim, -1) == 43 end
  -- One or three zeros before the due in an id's claim say that a window remembers the id (two alone: to_bury); release
  -- 0.1 reads the same due. Scripts before version 19 of the library wrote a w behind the due instead.
  local function has_window(claim)
    return #(string.match(claim, '^(0*)%d', 17) or '') % 2 == 1 or string.find(claim, 'w', 17, true)
  end
  local taken, windowed = {}, {}
  replies, acked, extended, ended, n, i = {}, {}, {}, {}, 0, 0
  for k, group in ipairs(groups) do
    local token = ARGV[group]
    ended[k] = 0
    for _ = 1, ARGV[group + 1] do
      i = i + 1
      local id, claim = ids[i], claims[i]
      if taken[id] or (string.byte(id) or 0) < 32 then -- the placeholder, a timer, the record of a claim: no message
        replies[i] = 'GONE'
      elseif claim and #token == 16 and string.find(claim, token, 1, true) == 1 then
        n = n + 1
        replies[i], acked[n], taken[id] = 'OK', id, true
        if has_own_lease(claim) then
          extended[#extended + 1] = id
        else
          ended[k] = ended[k] + 1
        end
        if has_window(claim) then
          windowed[#windowed + 1] = id
        end
      else
        replies[i] = redis.call('HEXISTS', MESSAGES, id) == 1 and 'LOST' or 'GONE'
      end
    end
  end
  outcomes = remember and remember(windowed, 0)
  if not deleted and n > 0 then
    redis.call('HDEL', MESSAGES, unpack(acked))
    redis.call('HDEL', CLAIMS, unpack(acked))
  end
end
local changed, quiet, head, length = n > 0, false, old_head, old_length
if changed then
  if has_attrs and has_lives and not end_acked then -- which go with their messages
    -- ATTRS keeps the life of a message under this byte and the id: '<ms> <word> <due> <began> <node> <text>', a line for
    -- each event, the latest last; what is unknown is -, or left out at the end. RECENT has the same name of a message that
    -- has ended, until its life is forgotten.
    local LIFE_MARK = '\7'
    local names = {unpack(acked)}
    for k = 1, n do
      names[n + k] = LIFE_MARK .. acked[k]
    end
    redis.call('HDEL', ATTRS, unpack(names))
  elseif has_attrs then
    redis.call('HDEL', ATTRS, unpack(acked))
  end
  if end_acked then -- before the leases end: they say when the deliveries began
    -- Extend gives an id a lease of its own. A + at the end of the id's claim says so.
    local function has_own_lease(claim) return string.byte(claim, -1) == 43 end
    local attempt_of, held
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
    end_acked(acked, 'ack', function(id)
      if not held then
        held = {}
        for k = 1, #ids do
          held[ids[k]] = claims[k] or nil
        end
      end
      return attempt_of(id, held[id])
    end)
  end
  for k, group in ipairs(groups) do
    local count = ended and ended[k] or tonumber(ARGV[group + 1])
    if count > 0 then
      release_from_claim(ARGV[group], count)
    end
  end
  if extended and #extended > 0 then
    redis.call('ZREM', LEASES, unpack(extended))
    for k, id in ipairs(extended) do
      extended[k] = SINCE_MARK .. id
    end
    redis.call('HDEL', CLAIMS, unpack(extended))
  end
  redis.call('HINCRBY', META, 'acked', n)
  if outcomes and #outcomes > 0 then
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
  local next_due
  for k = 1, start and n or 0 do
    next_due = start(acked[k]) or next_due
  end
  head = next_due and first_score(SCHEDULED) or head
end
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
return {header, replies}

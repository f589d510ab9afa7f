#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/claim.lua and lua/blocks: change these, not this file.
-- claim: leases messages to a node (ready, or scheduled and due -> leased): n of them, or the node's fair share if that
--        is less. The share is what there is to take / live nodes, and at least one.
--        META's rate and max_leased allow fewer; the claim that uses them up closes the queue until it may grant again.
--        Messages that expired are not granted: they die, or are dropped (-> dead or absent), 250 or more a call.
--        A timer of a schedule is not granted, but its tick, which this call makes.
-- KEYS   the ten of the queue
-- ARGV   now | n: free handlers, 0 to 1,000; 0 only fills the wake-up list. A call grants 500 at most
--        if messages of the queue have options or failed before
--        | token: 16 random bytes, new for each claim | lease: 1 to 86,400,000 ms
-- Reply  {header, ready messages left, lease deadline ms, {id, ...}, {payload, ...}, {details, ...}, max_attempts}
--        left: 0 while the queue is closed
--        details: '<due ms> <attempt> <options>'; one element alone if all share it. At most 4 MiB of payload, or one
--        options: the stored words, and crashes=N if its lease ran out before; max_attempts: the queue's
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, HELD (a lease has this token), WRONGTYPE: nothing was written
-- Cost   O(granted + log n + bytes)
-- Again  HELD, while a lease has the token: `held` returns the grant. Else it grants others

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
-- What the block `before` reads, and the second score of SCHEDULED: it is the next head if the claim takes one message.
local first, old_length = redis.call('ZRANGE', SCHEDULED, '0', '1', 'WITHSCORES'), redis.call('LLEN', READY)
redis.call('ZCARD', LEASES); redis.call('ZCARD', NODES) -- a producer has no right to NODES: it is refused here
local old_head, second = tonumber(first[2] or 'inf'), tonumber(first[4] or 'inf')
-- A claim has one lease for everything that it granted. First bytes of its names, before the token: LEASE_MARK of the
-- lease in LEASES and of the granted ids in CLAIMS; COUNT_MARK of the number of ids still under the lease, in CLAIMS.
-- SINCE_MARK, before an id: when the delivery of an extended message began, in CLAIMS. The audit of release 0.1 passes
-- over such a name.
local LEASE_MARK, COUNT_MARK, SINCE_MARK = '\1', '\2', '\0='
-- count, share        how many handlers are free; how many messages this node may have
-- limits              of the rate, max_leased and expiries; nil if the queue has none
-- room                how many candidates are read; more than share if some of these have expired
-- ready, due          how many messages are in READY; how many are due in SCHEDULED
-- ids, dues           candidates, first those of READY; their dues in runs, as read_due returns them
-- listed, taken       how many candidates are of READY; how many of ids were looked at
-- granted, payloads   ids and payloads of the grant; n: how many. `granted` is the same table as `ids`: each entry is
--                     written at or behind the read position
-- details, shared     details of each, once they differ; the details that all share until then
-- claims, c           field, value, ... for CLAIMS; how many elements these are
-- bytes, largest      payload bytes granted; the most that one payload may have
-- read_attrs          nil if no message has attrs
-- run, last           index of the next run in dues; index of the present run's last id
-- due, claim, fresh   of the present run: due; what CLAIMS gets; details of a first attempt
-- seen                the attrs of the message before, of the same run; seen_held, seen_detail: what they made
-- fire, place_timers  nil if no candidate is a timer; the first turns a timer into its tick
-- looked              how many fires and earlier ticks the claim has looked at
-- alike               true if the next message can be granted just as the one before it
local count, token, lease_ms = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
if #ARGV ~= 4 or not count or count < 0 or count > 1000 or count % 1 ~= 0 or #token ~= 16
  or not lease_ms or lease_ms < 1 or lease_ms > 86400000 or lease_ms % 1 ~= 0 then
  return redis.error_reply('BADARGS claim takes now, n (0 to 1000), token (16 bytes), lease ms (1 to 86400000)')
end
-- Before the claim looks for messages: the repetition of a claim that took them all is recognised, too.
if count > 0 and redis.call('HEXISTS', CLAIMS, LEASE_MARK .. token) == 1 then
  return redis.error_reply('HELD a lease has this token: an earlier claim has granted. Read the grant with held, or '
    .. 'claim with a new token')
end
local ready, due, nodes = closed and 0 or math.max(0, old_length - 1), 0, 1
if paused or count == 0 or ready < 1 and (closed or old_head > now) then
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
  return {finish(false), ready, -1, {}, {}, {}}
end
local max_attempts, longest, selective =
  unpack(redis.call('HMGET', META, 'max_attempts', 'largest_payload_bytes', 'selective'))
if not closed and old_head <= now then
  local one = second > now or count == 1 and not selective -- at most one is taken: no need to count them
  due = math.max(0, math.min(one and 1 or redis.call('ZCOUNT', SCHEDULED, '-inf', int(now)), 1000 - ready))
end
if count > 1 and ready + due > 1 then
  nodes = math.max(1, redis.call('ZCOUNT', NODES, int(now - 3000), '(inf'))
end
local share = math.min(count, math.max(1, math.floor((ready + due) / nodes)))
local read_attrs
if redis.call('HLEN', ATTRS) > 1 then -- making functions costs as much as a command
  local function parse_attrs(text) -- failures, crashes, original due or nil, options, last error
    local failures, crashes, due, options, reason = string.match(text or '', '^(%d+) (%d+) ([%d-]+) ([^\n]*)\n(.*)$')
    return tonumber(failures or 0), tonumber(crashes or 0), tonumber(due), options or '', reason or ''
  end
  read_attrs, share = parse_attrs, math.min(share, 500)
end
local limits
if selective then
  -- What the queue's rate and max_leased, and the expiries of its messages, say of this grant. These are functions, made
  -- only for a queue that has such limits: a claim without them costs as much as before.
  limits = {share = share, room = share, tokens = math.huge, places = math.huge, next_cost = 1, expired = {}}
  local rate, max_leased, expiring, tat = unpack(redis.call('HMGET', META, 'rate', 'max_leased', 'expiring', 'tat'))

  -- Rate N/W/B: at most N starts in any W ms, B of them at once. `tat` is the time, in microseconds, at which the whole
  -- burst is available again (the generic cell rate algorithm). If each start takes W/(N-B+1), no window has more than N.
  -- A tat that is further ahead than the burst is of a clock that went back. Sums of times and fractions of a microsecond
  -- would be rounded: so tat is whole, each charge is rounded up, and `ahead` is a difference.
  function limits.read()
    local starts, window_ms, at_once = string.match(rate or '', '^([1-9]%d*)/([1-9]%d*)/([1-9]%d*)$')
    if starts and tonumber(at_once) <= tonumber(starts) then
      local step, burst = window_ms * 1000 / (starts - at_once + 1), tonumber(at_once)
      local ahead = math.max(0, math.min((tonumber(tat or '') or 0) - now_us, burst * step))
      tat = math.ceil(now_us + ahead)
      limits.step, limits.burst, limits.tokens = step, burst, math.floor((burst * step - ahead) / step)
    end
    if string.find(max_leased or '', '^%d+$') then
      -- Each message is in one state, so the leased ones are what the others leave.
      local leased = redis.call('HLEN', KEYS[5]) - redis.call('ZCARD', KEYS[1]) - redis.call('LLEN', KEYS[2])
        - redis.call('ZCARD', KEYS[7]) + 2
      limits.places = max_leased - leased
    end
    limits.share = math.min(share, limits.tokens, limits.places)
    limits.room = expiring and limits.share > 0 and math.max(limits.share, math.min(250, ready + due)) or limits.share
    -- The claim may write these: a wrong type stops it in time.
    redis.call('ZCARD', DEAD); redis.call('HLEN', MESSAGES); redis.call('ZCARD', RECENT)
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
  -- Leaves in ids and dues what this claim may grant: none that has expired, and `share` messages or what the tokens pay.
  -- Returns also how many candidates it needs: `room`, or more if some of these have expired. attrs: those of all, if the
  -- lists stay as they are.
  function limits.choose(candidates, runs, room, read_attrs)
    limits.expired, limits.next_cost = {}, 1
    local seen, cost, late_ms, failures, crashes, original, options, reason = false, 1, 0
    local run, last, text = 1, 0, nil
    local texts = redis.call('HMGET', ATTRS, unpack(candidates))
    -- Fast path: all fit, none has expired or costs more than one. The lists stay as they are.
    local all = #candidates <= limits.share
    for i = 1, all and #candidates or 0 do
      if i > last then
        text, last, run, seen = runs[run], runs[run + 1], run + 2, nil
      end
      if texts[i] ~= seen then -- neighbours often share their attrs
        seen = texts[i]
        failures, crashes, original, options = read_attrs(seen)
        if expiry_of(options, original or tonumber(text)) < now or limits.step and string.find(options, 'cost=') then
          all = false
          break
        end
      end
    end
    limits.attrs = all and texts or nil
    if all then return candidates, runs, room end
    seen, run, last = false, 1, 0
    local ids, dues, positions, costs, looked = {}, {}, {}, {}, #candidates
    local left, r = limits.tokens, 0
    for i, id in ipairs(candidates) do
      if i > last then
        text, last, run, seen = runs[run], runs[run + 1], run + 2, nil
      end
      if texts[i] ~= seen then -- neighbours often share their attrs
        seen, cost, late_ms = texts[i], 1, 0
        failures, crashes, original, options, reason = read_attrs(seen)
        if options ~= '' then
          late_ms = now - expiry_of(options, original or tonumber(text))
          cost = limits.step and math.min(limits.burst, tonumber(string.match(options, 'cost=(%d+)') or 1)) or 1
        end
      end
      if late_ms > 0 and #limits.expired == 250 then -- the next claim goes on
        looked = i - 1
        break
      elseif late_ms > 0 then
        limits.expired[#limits.expired + 1] = {i, id, failures, crashes, options, reason, late_ms}
      elseif #ids == limits.share or cost > left then
        looked, limits.next_cost = i - 1, cost
        break
      else
        left, costs[id] = left - cost, cost
        ids[#ids + 1], positions[#positions + 1] = id, i
        if dues[r - 1] ~= text then
          dues[r + 1], r = text, r + 2
        end
        dues[r] = #ids
      end
    end
    if #limits.expired > 0 and room < limits.room then return ids, dues, limits.room end
    limits.positions, limits.costs, limits.looked = positions, costs, looked
    local remembered = {} -- of those that are dropped
    for _, message in ipairs(limits.expired) do
      local words = message[5]
      if string.find(words, 'window=', 1, true) and string.find(words, 'on_expire=drop', 1, true) then
        remembered[#remembered + 1] = message[2]
      end
    end
    limits.outcomes = outcomes_of(remembered, DROPPED)
    return ids, dues, room
  end

  -- How many candidates leave READY or SCHEDULED, if the claim looked at so many of those that choose left.
  function limits.taken(taken)
    local positions = limits.positions
    return positions and (positions[taken + 1] or limits.looked + 1) - 1 or taken
  end

  -- Ends the expired ones among the candidates that were taken.
  function limits.expire(taken)
    local dying, stored, dropped = {}, {}, {}
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
    for _, message in ipairs(limits.expired) do
      local i, id, failures, crashes, options, reason, late_ms = unpack(message)
      if i > taken then break end
      if string.find(options, 'on_expire=drop', 1, true) then
        dropped[#dropped + 1], dropped[id] = id, true
      else
        local before = reason ~= '' and '; before that: ' .. reason or ''
        local why = string.format('expired %.0f ms ago', late_ms) .. before
        dying[#dying + 1], dying[#dying + 2] = now, id
        if note then
          note(id, 'expired')
        end
        stored[#stored + 1], stored[#stored + 2] = id, int(failures) .. ' ' .. int(crashes) .. ' - ' .. options .. '\n'
          .. string.sub(why, 1, 1024)
      end
    end
    local died = #stored / 2
    if died > 0 then
      redis.call('ZADD', DEAD, unpack(dying))
      redis.call('HSET', ATTRS, unpack(stored))
      redis.call('HINCRBY', META, 'died', died)
    end
    if #dropped > 0 then
      redis.call('HDEL', MESSAGES, unpack(dropped))
      redis.call('HDEL', ATTRS, unpack(dropped))
      if end_lives then
        end_lives(dropped, 'expired')
      end
    end
    local outcomes = {} -- of those that the claim took
    for i, name in ipairs(limits.outcomes or {}) do
      if i % 2 == 0 and dropped[string.sub(name, 3)] then
        outcomes[#outcomes + 1], outcomes[#outcomes + 2] = limits.outcomes[i - 1], name
      end
    end
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
    if died + #dropped > 0 then
      redis.call('HINCRBY', META, 'expired', died + #dropped)
    end
  end

  -- Charges the rate for n granted messages, and closes the queue if it may not grant the next one now.
  function limits.charge(n, granted)
    local fields, cost, step = {}, n, limits.step
    for i = 1, limits.costs and n or 0 do
      cost = cost + limits.costs[granted[i]] - 1
    end
    if step then
      tat = tat + math.ceil(cost * step)
      fields[1], fields[2] = 'tat', int(tat)
      if limits.tokens - cost < limits.next_cost then
        -- It opens at most 200 times a second, but not later than with half a burst: a late claim then loses no tokens.
        local some = math.ceil(math.min(5000 / step, limits.burst / 2))
        local enough = math.min(limits.burst, math.max(limits.next_cost, some))
        opens = math.max(now + 1, math.ceil((tat - (limits.burst - enough) * step) / 1000))
        closed = opens
        fields[3], fields[4] = 'rate_until', int(opens)
        old_head, old_length = math.huge, 1 -- finish sees the opening as a new head: it publishes it
      end
    end
    if limits.places <= n then
      closed = math.huge
    end
    if closed then
      fields[#fields + 1], fields[#fields + 2] = 'closed_until', (closed < math.huge and '' or 'full ') .. int(opens or 0)
    end
    if #fields > 0 then
      redis.call('HSET', META, unpack(fields))
    end
  end
  limits.read()
  share = limits.share
  if share < 1 then
    local head = old_head
    limits.charge(0)
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
    return {finish(true, false, head), 0, -1, {}, {}, {}}
  end
end
if (layout or '') > '3' then
  -- Neither writes: a wrong type, or a consumer without the rights to make ticks, stops the claim before its first write.
  redis.call('ZCARD', DEAD); redis.call('HSETNX', MESSAGES, '\0' .. string.rep('-', 70), '')
end
local room, ids, dues, listed = share
repeat -- once more with more room, if some of these have expired
  -- Ready messages first: they were promoted earlier.
  ids, dues, listed = {}, {}, math.min(room, ready)
  if room == listed + 1 then
    ids, dues = {first[1]}, {first[2], 1}
  elseif room > listed then
    -- Reads the first `room` due messages of SCHEDULED; there must be one. Returns their ids, and their dues as runs of
    -- equal dues: due, index of the run's last id, due, index, ...
    local function read_due(room)
      local ids, dues, r = redis.call('ZRANGE', SCHEDULED, '-inf', now, 'BYSCORE', 'LIMIT', '0', room), {}, 0
      -- ZMSCORE and not ZSCORE: consumers have no right to ZSCORE, so that the scripts of producers are refused to them.
      local last = tonumber(redis.call('ZMSCORE', SCHEDULED, ids[#ids])[1])
      -- Reading a score costs more than all else here. Where dues are dense, one ZCOUNT for each ms costs less. Beyond 9e15
      -- a number plus one may be the same number.
      if old_head >= 0 and last < 9e15 and (last - old_head + 1) * 2.5 <= #ids then
        local n, due, text = 0, math.floor(old_head), int(math.floor(old_head))
        while n < #ids do
          local after = int(due + 1)
          local same = due >= math.floor(last) and #ids or n + redis.call('ZCOUNT', SCHEDULED, text, '(' .. after)
          if same > n then
            dues[r + 1], dues[r + 2], r, n = text, same, r + 2, same
          end
          due, text = due + 1, after
        end
      else
        local found = redis.call('ZRANGE', SCHEDULED, '0', #ids - 1, 'WITHSCORES')
        for i = 1, #ids do
          if found[2 * i] ~= dues[r - 1] then
            dues[r + 1], r = found[2 * i], r + 2
          end
          dues[r] = i
        end
      end
      return ids, dues
    end
    ids, dues = read_due(room - listed)
  end
  if listed > 0 then
    -- Puts the first `listed` entries of READY before the ids and dues that read_due returned.
    local later, later_dues, prefix, r = ids, dues, nil, 0
    ids, dues = {}, {}
    for i, entry in ipairs(redis.call('LRANGE', READY, '1', listed)) do
      if not prefix or string.find(entry, prefix, 1, true) ~= 1 then -- neighbours often share their due
        prefix, r = string.match(entry, '^%d+:'), r + 2
        dues[r - 1] = prefix and string.sub(prefix, 1, -2) or '0'
      end
      ids[i], dues[r] = prefix and string.sub(entry, #prefix + 1) or '', i
    end
    for i = 1, #later do
      ids[listed + i] = later[i]
    end
    for i = 1, #later_dues, 2 do
      dues[r + i], dues[r + i + 1] = later_dues[i], later_dues[i + 1] + listed
    end
  end
  local before = room
  if limits and read_attrs then
    ids, dues, room = limits.choose(ids, dues, room, read_attrs)
  end
until room == before
local fire, place_timers, looked = nil, nil, 0
if (layout or '') > '3' then
  -- A claim that reaches a timer makes the tick, grants it, and moves the timer: one script, so that no tick is lost or
  -- doubled. One claim takes 64 timers at most, and no further one after it has computed the jitter of 1,000 fires, or
  -- looked for 1,000 earlier ticks. The other timers stay due, and the next claim takes them.
  local found = 0
  for i, id in ipairs(ids) do
    local is_timer = string.byte(id) == 4
    if is_timer and found == 64 then
      for k = #ids, i, -1 do
        ids[k] = nil
      end
      break
    end
    found = found + (is_timer and 1 or 0)
  end
  if found > 0 then -- making functions costs as much as a command
    local timers, replaced = {}, {}
    local fire_any -- any fire: made for the first one that is not plain
    -- Returns the tick's id, its value in CLAIMS and its details; nil if no tick is made.
    fire = function(member, payload)
      local name = string.sub(member, 2)
      local text = redis.call('HGET', META, 'schedule:' .. name)
      local fires = text and string.find(text, ' zone=', 1, true) and redis.call('HGET', META, 'fires:' .. name)
      -- Fast path: the schedule has no words but its set and its rule, one fire is due, and its list does not become low.
      local due, since, made, rest, rule, value, options = string.match(text or '', '^active (%d+) %d+ (%d+) (%d+) '
        .. '(%d+ %d+ %d+ %d+ %d+ %d+\n[%d ]*\nset=[^ \n]* (%l+)=([^ \n]+)\n([^\n]*)\n.*)$')
      local following, head, second
      if rule == 'every' then
        following = due + value
      elseif rule == 'zone' then
        local first, next_fire
        head, first, second, next_fire = string.match(fires or '', '^(%S+ %d+ [01]\n)(%d+) ()(%d+)')
        following = first == due and #fires + 1 - second >= 256 * 14 - 1 and tonumber(next_fire) -- as is_low
      end
      if following and following > now and tonumber(due) <= now and not string.find(options, 'expires=', 1, true) then
        local id, next_due = name .. '@' .. due, string.format('%d', following)
        if redis.call('HSETNX', MESSAGES, id, payload) == 1 then
          options = 'tick' .. (options ~= '' and ' ' or '') .. options
          redis.call('HSET', ATTRS, id, '0 0 - ' .. options .. '\n')
          -- A tick is a new message: its life begins.
          if layout > '4' and redis.call('HGET', META, 'life_keep_ms') then
            redis.call('HSET', ATTRS, '\7' .. id, int(now) .. ' tick ' .. string.match(id, '%d+$')) -- LIFE_MARK
          end
          text = 'active ' .. next_due .. ' ' .. due .. ' ' .. since .. ' ' .. string.format('%d', made + 1) .. ' ' .. rest
          if head then
            redis.call('HSET', META, 'schedule:' .. name, text, 'fires:' .. name, head .. string.sub(fires, second))
          else
            redis.call('HSET', META, 'schedule:' .. name, text)
          end
          timers[#timers + 1], timers[#timers + 2] = next_due, member
          return id, token .. due, due .. ' 1 ' .. options
        end
      end
      if not fire_any then
        -- What a claim needs of each schedule whose timer it reaches.
        local TIMER = '\4'
        local function spec_ms(s, name) return tonumber(s.words[name] or '') end
        local function parse_schedule(name, text, fires)
          local state, next, last, since, made, missed, overlapped, paused, triggered, resumed, version, live, spec, options,
            pattern = string.match(text, '^(%a+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)\n([%d ]*)\n'
            .. '([^\n]*)\n([^\n]*)\n(.*)$')
          if not state then return nil end
          local words = {}
          for word, value in string.gmatch(spec, '(%l+)=([^ ]+)') do
            words[word] = value
          end
          if words.zone and not string.find(fires or '', '^%S+ %d+ [01]\n%d*') then
            fires = '0 0 0\n' -- the list is lost: a refill brings another
          end
          return {name = name, fires = fires, words = words, state = state, next = next + 0, last = last + 0,
            since = since + 0, made = made + 0, missed = missed + 0, overlapped = overlapped + 0, paused = paused + 0,
            triggered = triggered + 0, resumed = resumed + 0, version = version + 0, live = live, spec = spec,
            options = options, pattern = pattern, every = tonumber(words.every or ''),
            last_fire = tonumber(words['end'] or '') or math.huge, limit = tonumber(words.limit or '') or math.huge,
            jitter = tonumber(words.jitter or '') or 0, overlap = words.overlap or 'allow'}
        end
        local function write_schedule(s)
          -- %d costs a fifth of %.0f.
          local text = string.format('%s %d %d %d %d %d %d %d %d %d %d\n%s\n%s\n%s\n%s', s.state, s.next, s.last, s.since,
            s.made, s.missed, s.overlapped, s.paused, s.triggered, s.resumed, s.version, s.live, s.spec, s.options, s.pattern)
          if s.every or s.fires == s.stored then -- a list of 512 fires has 7 kB
            redis.call('HSET', META, 'schedule:' .. s.name, text)
          else
            redis.call('HSET', META, 'schedule:' .. s.name, text, 'fires:' .. s.name, s.fires)
          end
        end
        -- A tick is due its nominal time plus a jitter, which all callers compute alike.
        local function due_of_tick(s, nominal)
          if s.jitter == 0 then return nominal end
          return nominal + tonumber(string.sub(redis.sha1hex(s.name .. '@' .. int(nominal)), 1, 8), 16) % s.jitter
        end
        local function due_of_timer(s) return s.state == 'active' and due_of_tick(s, s.next) or NEVER end
        -- Sets the next fire after s.last: of `every` by arithmetic, of a cron from what is left of its list.
        local function move_on(s)
          if s.state == 'paused' then return end
          local nominal
          if s.every then
            nominal = s.last + s.every
          else
            nominal = tonumber(string.match(s.fires, '\n(%d+)'))
          end
          if s.made >= s.limit or (nominal or 0) > s.last_fire or not nominal and string.find(s.fires, '^%S+ %d+ 1\n') then
            s.state, s.next = 'ended', 0
          elseif nominal then
            s.state, s.next = 'active', nominal
          else
            s.state, s.next = 'dry', 0
          end
        end
        local lists -- functions for lists of fires, made for the first cron
        local function is_over(s, nominal, time) -- whether the tick of this fire is due at or before this time
          if s.jitter > 0 then
            looked = looked + 1
          end
          return due_of_tick(s, nominal) <= time
        end
        fire_any = function(member, name, payload, text, fires)
          local s = text and parse_schedule(name, text, fires)
          if not s then -- a timer without a schedule
            redis.call('HDEL', MESSAGES, member)
            return nil
          end
          s.stored = fires
          if due_of_timer(s) > now then -- it moved on while it was ready
            timers[#timers + 1], timers[#timers + 2] = int(due_of_timer(s)), member
            return nil
          end
          local was_low, nominal
          -- The fires that are due: the first, the newest, how many; of a cron also its list.
          local until_ms, first, newest, count, list = math.min(now, s.last_fire), s.next
          if s.every then
            newest = s.next + math.floor((until_ms - s.next) / s.every) * s.every
            if newest > s.next and not is_over(s, newest, now) then
              newest = newest - s.every
            end
            count = (newest - s.next) / s.every + 1
          else
            if not lists then
              -- The list of a cron: ascending fires with a blank between. All of 2001 to 2286 have 13 digits. In such a list the
              -- n-th is found by its place; any other list is read.
              local function open_list(text)
                local list = {text = text, from = string.find(text, '\n', 1, true) + 1, n = 0}
                list.width = #string.match(text, '^%d*', list.from) + 1
                local length = #text + 2 - list.from
                if length % list.width == 0 and string.find(text, '^[\n ]%d', #text + 1 - list.width) then
                  list.n = length / list.width
                elseif length > 1 then
                  list.starts = {}
                  for start in string.gmatch(string.sub(text, list.from), '()%d+') do
                    list.n = list.n + 1
                    list.starts[list.n] = list.from + start - 1
                  end
                end
                return list
              end
              local function start_of(list, n)
                if not list.starts then return list.from + (n - 1) * list.width end
                return list.starts[n] or #list.text + 1
              end
              local function fire_at(list, n) return tonumber(string.match(list.text, '^%d+', start_of(list, n)) or 'inf') end
              local function count_until(list, time) -- how many fires are at or before this time
                local low, high = 0, fire_at(list, 2) > time and 1 or list.n -- mostly few are
                while low < high do
                  local middle = math.ceil((low + high) / 2)
                  if fire_at(list, middle) <= time then
                    low = middle
                  else
                    high = middle - 1
                  end
                end
                return low
              end
              local function drop_fires(list, n) -- the text without the first n fires
                if n == 0 then return list.text end
                return string.sub(list.text, 1, list.from - 1) .. string.sub(list.text, start_of(list, n + 1))
              end
              -- Whether a list has fewer than 256 fires and needs more soon, and META's counts of such lists and of dry ones.
              local LOW_BYTES = 256 * 14 - 1 -- of 13 digits and a blank
              local function is_low(s)
                if s.every or s.state == 'ended' or string.find(s.fires, '^%S+ %d+ 1\n') then return false end
                return #s.fires - string.find(s.fires, '\n', 1, true) < LOW_BYTES
              end
              local function count_lists(s, was_low, was_dry)
                local low, dry = s and is_low(s) or false, s and s.state == 'dry' or false
                if low ~= was_low then
                  redis.call('HINCRBY', META, 'low_lists', low and 1 or -1)
                end
                if dry ~= was_dry then
                  redis.call('HINCRBY', META, 'dry_lists', dry and 1 or -1)
                end
              end
              lists = {open = open_list, at = fire_at, count = count_until, drop = drop_fires, low = is_low,
                recount = count_lists}
            end
            list, was_low = lists.open(s.fires), lists.low(s)
            -- Those that are due whatever their jitter is, and then one by one.
            count = lists.count(list, s.jitter == 0 and until_ms or math.min(now - s.jitter + 1, s.last_fire))
            while lists.at(list, count + 1) <= until_ms and is_over(s, lists.at(list, count + 1), now) do
              count = count + 1
            end
            first, newest = lists.at(list, 1), lists.at(list, count)
          end
          if count > 0 then -- else the list was lost
            -- Which fire becomes a tick, nil if none; and the last one that is over with it. Counts those that are missed.
            local missed = s.words.missed or 'one'
            local within = spec_ms(s, 'within') or missed == 'skip' and 10000 or missed == 'all' and 86400000 or math.huge
            -- A tick that has expired is missed, too.
            local expires = s.options ~= '' and tonumber(string.match(s.options, 'expires=%+(%d+)') or '')
            within = math.min(within, expires or math.huge)
            local past = count -- how many are over
            nominal = newest
            if missed == 'all' then -- the oldest that is neither beyond the maximum nor too late
              local late = now - within - s.jitter -- a fire before this is too late, whatever its jitter is
              local late_fires = list and lists.count(list, late - 1) or math.ceil((late - first) / s.every)
              past = math.max(1, count - (spec_ms(s, 'max') or 1000) + 1, math.min(count, late_fires + 1))
              local function at(i) return list and lists.at(list, i) or first + (i - 1) * s.every end
              while past < count and is_over(s, at(past), now - within - 1) do
                past = past + 1
              end
              nominal = at(past)
            end
            s.last = nominal
            if list then
              s.fires = lists.drop(list, past)
            end
            if now - due_of_tick(s, nominal) > within then
              s.missed, nominal = s.missed + past, nil
            else
              s.missed = s.missed + past - 1
            end
          end
          local live = {}
          if nominal and s.overlap ~= 'allow' then
            -- Adds to `live` the ids of the schedule's ticks that wait or are leased; of them `s.live` keeps the nominal times. A
            -- message that a producer pushed under the id of a former tick has not the option `tick`.
            local ids, times = {}, {}
            for time in string.gmatch(s.live, '%d+') do
              ids[#ids + 1] = s.name .. '@' .. time
            end
            for from = 1, #ids, 1000 do
              local some = {unpack(ids, from, math.min(from + 999, #ids))}
              local attrs, dead = redis.call('HMGET', ATTRS, unpack(some)), redis.call('ZMSCORE', DEAD, unpack(some))
              for i, id in ipairs(some) do
                if attrs[i] and string.find(attrs[i], '^%d+ %d+ %S+ tick[ \n]') and not dead[i] then
                  live[#live + 1], times[#times + 1] = id, string.sub(id, #s.name + 2)
                end
              end
            end
            s.live = table.concat(times, ' ')
            looked = looked + #live
          end
          if s.overlap == 'skip' and #live > 0 or #live >= 1000 then
            s.overlapped, nominal = s.overlapped + 1, nil
          end
          local id, options
          if nominal then
            id = name .. '@' .. int(nominal)
            if redis.call('HSETNX', MESSAGES, id, payload) == 1 then
              options = 'tick' .. (s.options ~= '' and ' ' or '') .. s.options
              redis.call('HSET', ATTRS, id, '0 0 - ' .. options .. '\n')
              -- A tick is a new message: its life begins.
              if layout > '4' and redis.call('HGET', META, 'life_keep_ms') then
                redis.call('HSET', ATTRS, '\7' .. id, int(now) .. ' tick ' .. string.match(id, '%d+$')) -- LIFE_MARK
              end
              s.made = s.made + 1
              if s.overlap ~= 'allow' then
                s.live = s.live .. (s.live ~= '' and ' ' or '') .. int(nominal)
              end
              for _, tick in ipairs(s.overlap == 'replace' and live or {}) do -- only here, where there is a new one
                replaced[#replaced + 1] = tick
              end
            else -- another message has the id
              s.overlapped, id = s.overlapped + 1, nil
            end
          end
          move_on(s)
          write_schedule(s)
          if list then
            lists.recount(s, was_low, false)
          end
          timers[#timers + 1], timers[#timers + 2] = int(due_of_timer(s)), member
          if not id then return nil end
          local due = int(due_of_tick(s, nominal))
          return id, token .. due, due .. ' 1 ' .. options
        end
      end
      return fire_any(member, name, payload, text, fires)
    end
    -- After the candidates left SCHEDULED and READY, by rank. Returns how many ready messages are left, if it removed some.
    place_timers = function()
      if #timers > 0 then
        redis.call('ZADD', SCHEDULED, unpack(timers))
      end
      if #replaced > 0 then
        local ids = replaced
        -- Removes those of the ticks `ids` that wait; a leased one goes on. Consumers have no right to ZREM of SCHEDULED.
        local gone, scheduled, ready = {}, {}, {}
        for from = 1, #ids, 1000 do
          local some = {unpack(ids, from, math.min(from + 999, #ids))}
          local claims, attrs = redis.call('HMGET', CLAIMS, unpack(some)), redis.call('HMGET', ATTRS, unpack(some))
          local dead, due = redis.call('ZMSCORE', DEAD, unpack(some)), redis.call('ZMSCORE', SCHEDULED, unpack(some))
          for i, id in ipairs(some) do
            if attrs[i] and not claims[i] and not dead[i] and not gone[id] then
              gone[#gone + 1], gone[id] = id, true
              if due[i] then
                scheduled[#scheduled + 1], scheduled[#scheduled + 2] = '-inf', id
              else
                ready[id] = true
              end
            end
          end
        end
        -- Removes these members, the keys of `gone`, from READY: one read and one write of the list. The placeholder stays.
        local function leave_ready(gone)
          if not next(gone) then return end
          local rest = {}
          for _, entry in ipairs(redis.call('LRANGE', READY, '1', '-1')) do
            if not gone[string.match(entry, '^%d+:(.*)$') or ''] then
              rest[#rest + 1] = entry
            end
          end
          redis.call('LTRIM', READY, '0', '0')
          for i = 1, #rest, 1000 do
            redis.call('RPUSH', READY, unpack(rest, i, math.min(i + 999, #rest)))
          end
        end
        leave_ready(ready)
        for from = 1, #gone, 1000 do
          redis.call('HDEL', MESSAGES, unpack(gone, from, math.min(from + 999, #gone)))
          redis.call('HDEL', ATTRS, unpack(gone, from, math.min(from + 999, #gone)))
          if layout > '4' then
            local lives = {}
            for i = from, math.min(from + 999, #gone) do
              lives[#lives + 1] = '\7' .. gone[i] -- LIFE_MARK
            end
            redis.call('HDEL', ATTRS, unpack(lives))
          end
        end
        for from = 1, #scheduled, 2000 do
          local to = math.min(from + 1999, #scheduled)
          redis.call('ZADD', SCHEDULED, unpack(scheduled, from, to))
          redis.call('ZREMRANGEBYRANK', SCHEDULED, '0', (to - from - 1) / 2)
        end
        return redis.call('LLEN', READY) - 1
      end
    end
  end
  if found == #ids then -- timers have no attrs
    read_attrs = nil
  end
end

-- No payload is read in vain: each HMGET reads as many as are sure to fit into the rest of 4 MiB. If that is none,
-- HSTRLEN reads the next payload's length first.
local granted, payloads, claims, details = ids, {unpack(ids)}, {unpack(ids)}, nil -- allocated in their final size
local n, c, bytes, taken, deadline = 0, 0, 0, 0, now_up + lease_ms
local largest = #ids > 1 and (tonumber(longest or 4096) or 16777216) or math.huge
local run, last, due, claim, fresh, shared, alike, seen, seen_held, seen_detail = 1, 0
while taken < #ids and (taken == 0 or bytes < 4194304) do
  local from, to = taken + 1, math.min(#ids, taken + math.floor((4194304 - bytes) / largest))
  if to < from then
    if n > 0 and bytes + redis.call('HSTRLEN', MESSAGES, ids[from]) > 4194304 then break end
    to = from
  end
  -- Of the messages that the claim reads now. If they are its last ones and none has attrs, they take the fast path.
  local attrs = not read_attrs and {} or from == 1 and limits and limits.attrs
    or redis.call('HMGET', ATTRS, unpack(ids, from, to))
  local some = not read_attrs or to < #ids
  for i = 1, some and 0 or #attrs do
    some = some or attrs[i]
  end
  read_attrs = some and read_attrs
  local found = redis.call('HMGET', MESSAGES, unpack(ids, from, to))
  for i = 1, #found do
    local payload, at = found[i], taken + 1
    local id = ids[at]
    if at > last then -- the next run begins
      local text = dues[run]
      last, run, due, claim, fresh = dues[run + 1], run + 2, tonumber(text), token .. text, text .. ' 1 '
      if due <= 0 or due % 1 ~= 0 then -- -0, too: not written by dueq: clients must be able to parse it
        fresh = int(math.max(0, due) + 0.5) .. ' 1 '
      end
      seen = nil
      alike = not read_attrs and not fire and due <= now and n > 0 and (details or fresh == shared)
    end
    if payload and n > 0 and bytes + #payload > 4194304 or looked >= 1000 and string.byte(id) == 4 then
      bytes = 4194304
      break
    end
    taken = at
    if payload and alike then -- the fast path: single assignments, for a multiple one goes through temporaries
      n = n + 1
      c = c + 2
      if n < at then
        granted[n] = id
      end
      payloads[n] = payload
      claims[c - 1] = id
      claims[c] = claim
      if details then
        details[n] = fresh
      end
      bytes = bytes + #payload
    elseif payload and due > now then -- the clock went back: the message is not due yet
      redis.call('ZADD', SCHEDULED, due, id)
      second = nil
    elseif payload then -- without a payload there is no message: the entry is dropped
      local held, detail = claim, fresh
      if fire and string.byte(id) == 4 then -- a timer: the tick that it makes is granted
        id, held, detail = fire(id, payload)
        if id and limits and limits.costs then
          limits.costs[id] = 1
        end
      elseif attrs[i] and attrs[i] == seen then -- neighbours often share their options
        held, detail = seen_held, seen_detail
      elseif attrs[i] then
        local failures, crashes, original, options = read_attrs(attrs[i])
        if original then
          held = token .. int(original)
        end
        if string.find(options, 'window=', 1, true) then
          held = token .. '0' .. string.sub(held, 17) -- has_window finds it
        end
        local first_due = original and int(original) or string.match(fresh, '^%d+')
        detail = first_due .. ' ' .. int(failures + crashes + 1) .. ' ' .. options
        if crashes > 0 then
          detail = detail .. (options == '' and '' or ' ') .. 'crashes=' .. int(crashes)
        end
        seen, seen_held, seen_detail = attrs[i], held, detail
      end
      if id then
        n, c, alike = n + 1, c + 2, not read_attrs and not fire
        granted[n], payloads[n], claims[c - 1], claims[c] = id, payload, id, held
        if n == 1 then
          shared = detail
        elseif not details and detail ~= shared then
          details = {}
          for k = 1, n - 1 do
            details[k] = shared
          end
        end
        if details then
          details[n] = detail
        end
        bytes = bytes + #payload
      end
    end
  end
end

for i = #ids, n + 1, -1 do -- candidates that were not granted
  granted[i], payloads[i] = nil, nil
end
if limits then
  taken = limits.taken(taken)
end
local unlisted = math.min(taken, listed)
if unlisted > 0 then
  -- The last entry taken becomes the placeholder: the list is never empty, not even within the script.
  local placeholder = redis.call('LINDEX', READY, '0')
  redis.call('LTRIM', READY, unlisted, '-1')
  redis.call('LSET', READY, '0', placeholder)
end
if taken > unlisted then
  redis.call('ZREMRANGEBYRANK', SCHEDULED, '0', taken - unlisted - 1)
end
if n > 0 then
  -- Ids have no control bytes. The first line is no id: a byte 3 and the length of the lease. It goes into the first id
  -- for a moment: behind the list it would copy the list, and cost a claim of 100 messages 1 % more.
  local first_id = granted[1]
  granted[1] = '\3' .. ARGV[4] .. '\n' .. first_id
  claims[c + 1], claims[c + 2] = LEASE_MARK .. token, table.concat(granted, '\n')
  granted[1] = first_id
  claims[c + 3], claims[c + 4] = COUNT_MARK .. token, int(n)
  redis.call('HSET', CLAIMS, unpack(claims, 1, c + 4))
  redis.call('ZADD', LEASES, int(deadline), LEASE_MARK .. token)
  redis.call('HINCRBY', META, 'claimed', int(n))
end
if limits then
  limits.expire(taken)
end
local left = place_timers and place_timers() or ready - unlisted
local changed, quiet, head, length = true, false, old_head, left + 1
if place_timers or not second or taken > unlisted + 1 then
  head = first_score(SCHEDULED)
elseif taken > unlisted then
  head = second
end
if limits then
  limits.charge(n, granted)
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
-- As after a promote: standbys learn that the due messages were taken, and need not promote.
if taken > unlisted and head - now > 25 then
  redis.pcall('SPUBLISH', base .. ':notice', head < NEVER and int(head) or '')
end
return {header, closed and 0 or left, deadline, granted, payloads, details or {shared}, tonumber(max_attempts or 20)}

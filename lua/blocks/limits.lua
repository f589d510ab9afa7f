-- The rate of a queue, and its limit of leased messages.

--- block: limits
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
    --- use: leased
    limits.places = max_leased - leased
  end
  limits.share = math.min(share, limits.tokens, limits.places)
  limits.room = expiring and limits.share > 0 and math.max(limits.share, math.min(250, ready + due)) or limits.share
  -- The claim may write these: a wrong type stops it in time.
  redis.call('ZCARD', DEAD); redis.call('HLEN', MESSAGES); redis.call('ZCARD', RECENT)
end

--- use: expiry
--- use: recent_marks
--- use: outcomes
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
  --- use: life
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
    --- use: trim_recent
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

--- block: forget_rate_opening
-- If the rate closed the queue, opens it: the next claim computes the opening again. A pause or throttle stays.
if opens and int(opens) == redis.call('HGET', META, 'rate_until') then
  local rest = tonumber(redis.call('HGET', META, 'break_until') or '') or 0
  opens = rest > now and rest
  redis.call('HSET', META, 'closed_until', (closed == math.huge and 'full ' or '') .. int(opens or 0))
  closed = closed == math.huge and closed or opens
  old_head, old_length = math.huge, 1 -- finish sees the head as new: it publishes it
  reopened = true
end

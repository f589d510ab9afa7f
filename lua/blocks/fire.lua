-- A claim that reaches a timer makes the tick, grants it, and moves the timer: one script, so that no tick is lost or
-- doubled. These are functions, made only for a queue with schedules.
-- Neither writes: a wrong type, or a consumer without the rights to make ticks, stops the claim before its first write.
redis.call('ZCARD', DEAD); redis.call('HSETNX', MESSAGES, '\0' .. string.rep('-', 70), '')
--- use: schedule_record
--- use: live_ticks
local timers, replaced = {}, {}
-- One claim takes 64 timers at most. It takes no further one once it has computed the jitter of 1,000 fires, or looked
-- for so many earlier ticks. What it leaves is due: the next claim goes on.
few_timers = function(ids)
  local found = 0
  for i, id in ipairs(ids) do
    found = found + (string.byte(id) == 4 and 1 or 0)
    if found > 64 then
      for k = #ids, i, -1 do
        ids[k] = nil
      end
      break
    end
  end
end
local looked = 0
is_enough = function() return looked >= 1000 end
local function is_over(s, nominal, time) -- whether the tick of this fire is due at or before this time
  if s.jitter > 0 then
    looked = looked + 1
  end
  return due_of_tick(s, nominal) <= time
end
-- The fires that are due: the first, the newest, how many; of a cron also its list.
local function due_fires(s)
  local until_ms = math.min(now, s.last_fire)
  if s.every then
    local newest = s.next + math.floor((until_ms - s.next) / s.every) * s.every
    if newest > s.next and not is_over(s, newest, now) then
      newest = newest - s.every
    end
    return s.next, newest, (newest - s.next) / s.every + 1
  end
  -- Those that are due whatever their jitter is, and then one by one.
  local list = open_list(s.fires)
  local count = count_until(list, s.jitter == 0 and until_ms or math.min(now - s.jitter + 1, s.last_fire))
  while fire_at(list, count + 1) <= until_ms and is_over(s, fire_at(list, count + 1), now) do
    count = count + 1
  end
  return fire_at(list, 1), fire_at(list, count), count, list
end
-- Which fire becomes a tick, nil if none; and the last one that is over with it. Counts those that are missed.
local function choose_fire(s)
  local missed = s.words.missed or 'one'
  local within = spec_ms(s, 'within') or missed == 'skip' and 10000 or missed == 'all' and 86400000 or math.huge
  -- A tick that has expired is missed, too.
  local expires = s.options ~= '' and tonumber(string.match(s.options, 'expires=%+(%d+)') or '')
  within = math.min(within, expires or math.huge)
  local first, newest, count, list = due_fires(s)
  if count == 0 then return nil end -- the list was lost
  local nominal, past = newest, count -- past: how many are over
  if missed == 'all' then -- the oldest that is neither beyond the maximum nor too late
    local late = now - within - s.jitter -- a fire before this is too late, whatever its jitter is
    local late_fires = list and count_until(list, late - 1) or math.ceil((late - first) / s.every)
    past = math.max(1, count - (spec_ms(s, 'max') or 1000) + 1, math.min(count, late_fires + 1))
    local function at(i) return list and fire_at(list, i) or first + (i - 1) * s.every end
    while past < count and is_over(s, at(past), now - within - 1) do
      past = past + 1
    end
    nominal = at(past)
  end
  s.last = nominal
  if list then
    s.fires = drop_fires(list, past)
  end
  if now - due_of_tick(s, nominal) > within then
    s.missed, nominal = s.missed + past, nil
  else
    s.missed = s.missed + past - 1
  end
  return nominal
end
-- Returns the tick's id, its value in CLAIMS and its details; nil if no tick is made.
fire = function(member, payload)
  local s = read_schedule(string.sub(member, 2))
  if not s then -- a timer without a schedule
    redis.call('HDEL', MESSAGES, member)
    return nil
  end
  if due_of_timer(s) > now then -- it moved on while it was ready
    timers[#timers + 1], timers[#timers + 2] = int(due_of_timer(s)), member
    return nil
  end
  local was_low, id, options = not s.every and is_low(s), nil, nil
  local nominal = choose_fire(s)
  local live = nominal and s.overlap ~= 'allow' and live_ticks(s) or {}
  looked = looked + #live
  if s.overlap == 'skip' and #live > 0 or #live >= 1000 then
    s.overlapped, nominal = s.overlapped + 1, nil
  end
  if nominal then
    id = s.name .. '@' .. int(nominal)
    if redis.call('HSETNX', MESSAGES, id, payload) == 1 then
      options = 'tick' .. (s.options ~= '' and ' ' or '') .. s.options
      redis.call('HSET', ATTRS, id, '0 0 - ' .. options .. '\n')
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
  if not s.every then
    count_lists(s, was_low, false)
  end
  timers[#timers + 1], timers[#timers + 2] = int(due_of_timer(s)), member
  if not id then return nil end
  local due = int(due_of_tick(s, nominal))
  return id, token .. due, due .. ' 1 ' .. options
end
-- After the candidates left SCHEDULED and READY, by rank. Returns how many ready messages are left.
place_timers = function()
  if #timers > 0 then
    redis.call('ZADD', SCHEDULED, unpack(timers))
  end
  remove_waiting(replaced)
  return redis.call('LLEN', READY) - 1
end

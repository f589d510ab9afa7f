-- A claim that reaches a timer makes the tick, grants it, and moves the timer: one script, so that no tick is lost or
-- doubled. These are functions, made only for a queue with schedules.
-- Neither writes: a wrong type, or a consumer without the rights to make ticks, stops the claim before its first write.
redis.call('ZCARD', DEAD); redis.call('HSETNX', MESSAGES, '\0' .. string.rep('-', 70), '')
--- use: schedule_record
--- use: live_ticks
local timers, replaced = {}, {}
-- The fires that are due: the first, the newest, how many; of a cron also all of them, and where the rest of the list
-- begins after each.
local function due_fires(s)
  if s.every then
    local newest = s.next + math.floor((now - s.next) / s.every) * s.every
    newest = math.min(newest, s.next + math.floor((s.last_fire - s.next) / s.every) * s.every)
    if newest > s.next and due_of_tick(s, newest) > now then
      newest = newest - s.every
    end
    return s.next, newest, (newest - s.next) / s.every + 1
  end
  local due, rests, at = {}, {}, #string.match(s.fires, '^[^\n]*\n') + 1
  while true do
    local _, last, text = string.find(s.fires, '^(%d+) ?', at)
    local nominal = tonumber(text or '')
    if not nominal or nominal > s.last_fire or due_of_tick(s, nominal) > now then break end
    at = last + 1
    due[#due + 1], rests[#rests + 1] = nominal, at
  end
  return due[1], due[#due], #due, due, rests
end
-- Which fire becomes a tick, nil if none; and the last one that is over with it. Counts those that are missed.
local function choose_fire(s)
  local missed = s.words.missed or 'one'
  local within = spec_ms(s, 'within') or missed == 'skip' and 10000 or missed == 'all' and 86400000 or math.huge
  -- A tick that has expired is missed, too.
  local expires = s.options ~= '' and tonumber(string.match(s.options, 'expires=%+(%d+)') or '')
  within = math.min(within, expires or math.huge)
  local first, newest, count, due, rests = due_fires(s)
  if count == 0 then return nil end -- the list was lost
  local nominal, past = newest, count -- past: how many are over
  if missed == 'all' then -- the oldest that is neither beyond the maximum nor too late
    past = math.max(1, count - (spec_ms(s, 'max') or 1000) + 1)
    if s.every then
      past = math.max(past, math.min(count, math.ceil((now - within - s.jitter - first) / s.every) + 1))
    end
    local function at(i) return due and due[i] or first + (i - 1) * s.every end
    while past < count and now - due_of_tick(s, at(past)) > within do
      past = past + 1
    end
    nominal = at(past)
  end
  s.last = nominal
  if not s.every then
    s.fires = string.match(s.fires, '^[^\n]*\n') .. string.sub(s.fires, rests[past])
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
  if s.overlap == 'skip' and #live > 0 then
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
  for _, id in ipairs(replaced) do
    remove_waiting(id)
  end
  return redis.call('LLEN', READY) - 1
end

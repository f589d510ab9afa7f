-- The ticks that a claim makes, from the timers that it reaches.

--- block: may_make_ticks
-- Neither writes: a wrong type, or a consumer without the rights to make ticks, stops the claim before its first write.
redis.call('ZCARD', DEAD); redis.call('HSETNX', MESSAGES, '\0' .. string.rep('-', 70), '')

--- block: fire
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
  --- use: make_fire
end
if found == #ids then -- timers have no attrs
  read_attrs = nil
end

--- block: make_fire
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
      --- use: note_tick
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
    --- use: timer
    --- use: fire_any
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
    --- use: remove_waiting
    return redis.call('LLEN', READY) - 1
  end
end

--- block: fire_any
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
  --- use: due_fires
  if count > 0 then -- else the list was lost
    --- use: choose_fire
  end
  local live = {}
  if nominal and s.overlap ~= 'allow' then
    --- use: live_ticks
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
      --- use: note_tick
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

--- block: due_fires
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
    --- use: fire_list
    --- use: list_counts
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

--- block: choose_fire
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

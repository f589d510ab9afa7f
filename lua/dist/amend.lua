#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/amend.lua and lua/blocks: change these, not this file.
-- amend: pauses, resumes or removes schedules. Ticks that they made stay. A paused schedule makes no ticks; its fires
--        until the resume count as paused.
-- KEYS   the ten of the queue
-- ARGV   now | pause, resume or remove | per schedule, 1 to 1,000: name
-- Reply  {header, {OK <next> | GONE, ...}}; next: 0 if it does not fire now
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(schedules log n)
-- Again  the same; of remove GONE

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
local function int(number) return string.format('%.0f', number) end
local clock, epoch = ARGV[1], nil -- epoch: of the partition's map; nil without one
if layout and layout ~= '1' then
  if layout ~= '2' and layout ~= '3' and layout ~= '4' then
    return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1, 2, 3 or 4: use a newer dueq')
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
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if closed then
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
  end
  if closed then -- as if no message were due earlier, and ready ones then
    length = length or changed and redis.call('LLEN', READY) or old_length
    head, length = length > 1 and closed or math.max(head, closed), 1
    old_head = old_length > 1 and closed or math.max(old_head, closed)
  end
  if not paused and not quiet then
    local parked = parked_until and (tonumber(parked_until) or 0) > now -- then each earlier head is published
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
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
  return {now_us, incarnation, tonumber(seq or 0), head < NEVER and head or -1, deadline < NEVER and deadline or -1,
    paused and 1 or 0, epoch}
end
local change = ARGV[2]
if #ARGV < 3 or #ARGV > 1002 or change ~= 'pause' and change ~= 'resume' and change ~= 'remove' then
  return redis.error_reply('BADARGS amend takes now, pause, resume or remove, then 1 to 1000 names of schedules')
end
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
redis.call('HLEN', MESSAGES)
-- A schedule is a field `schedule:NAME` of META, a timer in SCHEDULED or READY (a byte 4 and the name), and the payload
-- of its ticks in MESSAGES under the same member. A cron's next fires are in the field `fires:NAME` of META.
--   schedule:NAME  '<state> <next> <last> <since> <made> <missed> <overlapped> <paused> <triggered> <resumed>
--                  <version>', LF, nominal times of ticks that may be alive, LF, spec words, LF, options of ticks, LF,
--                  pattern
--   fires:NAME     '<tzdata version> <last listed> <1: there are no more>', LF, fires in ms
-- A timer that waits for nothing (paused, dry, ended) stands at NEVER, so that lengths count each member of MESSAGES.
local TIMER = '\4'
local function spec_ms(s, name) return tonumber(s.words[name] or '') end
local function parse_schedule(name, text, fires)
  local s = {name = name, fires = fires, words = {}}
  s.state, s.next, s.last, s.since, s.made, s.missed, s.overlapped, s.paused, s.triggered, s.resumed, s.version, s.live,
    s.spec, s.options, s.pattern = string.match(text, '^(%a+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) '
    .. '(%d+)\n([%d ]*)\n([^\n]*)\n([^\n]*)\n(.*)$')
  if not s.state then return nil end
  s.next, s.last, s.since, s.made, s.missed = s.next + 0, s.last + 0, s.since + 0, s.made + 0, s.missed + 0
  s.overlapped, s.paused, s.triggered = s.overlapped + 0, s.paused + 0, s.triggered + 0
  s.resumed, s.version = s.resumed + 0, s.version + 0
  for word, value in string.gmatch(s.spec, '(%l+)=([^ ]+)') do
    s.words[word] = value
  end
  if s.words.zone and not string.find(fires or '', '^%S+ %d+ [01]\n%d*') then
    s.fires = '0 0 0\n' -- the list is lost: a refill brings another
  end
  s.every, s.last_fire, s.limit = spec_ms(s, 'every'), spec_ms(s, 'end') or math.huge, spec_ms(s, 'limit') or math.huge
  s.jitter, s.overlap = spec_ms(s, 'jitter') or 0, s.words.overlap or 'allow'
  return s
end
local function read_schedule(name)
  local text, fires = unpack(redis.call('HMGET', META, 'schedule:' .. name, 'fires:' .. name))
  return text and parse_schedule(name, text, fires)
end
local function write_schedule(s)
  -- %d costs a fifth of %.0f.
  local text = string.format('%s %d %d %d %d %d %d %d %d %d %d\n%s\n%s\n%s\n%s', s.state, s.next, s.last, s.since,
    s.made, s.missed, s.overlapped, s.paused, s.triggered, s.resumed, s.version, s.live, s.spec, s.options, s.pattern)
  if s.every then
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
-- Whether a list of fires needs more soon, and META's counts of such lists and of dry ones.
local LOW = 256
local function is_low(s)
  if s.every or s.state == 'ended' or string.find(s.fires, '^%S+ %d+ 1\n') then return false end
  return #s.fires - string.find(s.fires, '\n', 1, true) < LOW * 14 - 1 -- of 13 digits and a blank
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
-- META's schedule_sets has the names of all sets; schedules:SET the set's revision and the names of its schedules. Both
-- are sorted, one name a line.
local function lines_of(text)
  local lines = {}
  for line in string.gmatch(text or '', '[^\n]+') do
    lines[#lines + 1] = line
  end
  return lines
end
local function read_sets() return lines_of(redis.call('HGET', META, 'schedule_sets')) end
local function read_set(set) -- names, revision or nil
  local text = redis.call('HGET', META, 'schedules:' .. set)
  local revision, names = string.match(text or '', '^(%d*)\n(.*)$')
  return lines_of(names), tonumber(revision or '')
end
-- Takes a schedule's timer out of READY and SCHEDULED, or moves it to its due time.
local function remove_timer(s)
  if redis.call('ZREM', SCHEDULED, TIMER .. s.name) == 1 then return end
  for _, entry in ipairs(redis.call('LRANGE', READY, 1, -1)) do
    if string.match(entry, '^%d+:(.*)$') == TIMER .. s.name then
      redis.call('LREM', READY, 1, entry)
    end
  end
end
local function place_timer(s) redis.call('ZADD', SCHEDULED, int(due_of_timer(s)), TIMER .. s.name) end
-- Writes the names of a set's schedules. A set without schedules keeps its revision: an older one stays refused.
local function write_set(set, names, revision)
  local sets, present = read_sets(), false
  for _, name in ipairs(sets) do
    present = present or name == set
  end
  if not present then
    sets[#sets + 1] = set
    table.sort(sets)
    redis.call('HSET', META, 'schedule_sets', table.concat(sets, '\n'))
  end
  table.sort(names)
  redis.call('HSET', META, 'schedules:' .. set, (revision and int(revision) or '') .. '\n' .. table.concat(names, '\n'))
end
-- Removes a schedule and its timer, but none of its ticks.
local function remove_schedule(s)
  local member = TIMER .. s.name
  remove_timer(s)
  redis.call('HDEL', MESSAGES, member)
  redis.call('HDEL', META, 'schedule:' .. s.name, 'fires:' .. s.name)
  redis.call('HINCRBY', META, 'schedules', '-1')
  count_lists(nil, is_low(s), s.state == 'dry')
end
local replies, changed, gone = {}, false, {}
local function resume(s) -- counts the fires since the pause
  local was_low = is_low(s)
  s.state, s.resumed = 'active', now
  if s.every then
    local over = math.floor((math.min(now, s.last_fire) - s.next) / s.every) + 1
    if over > 0 then -- else `next` stays: the fire before it may be one before the start, or even before 1970
      s.last, s.paused = s.next + (over - 1) * s.every, s.paused + over
      move_on(s)
    end
  else
    -- Fires until the resume count as paused.
    local head, list = string.match(s.fires, '^([^\n]*\n)(.*)$')
    local time = tonumber(string.match(list, '^%d+') or 'inf')
    while time <= math.min(s.resumed, s.last_fire) do
      s.last, s.paused = time, s.paused + 1
      list = string.gsub(list, '^%d+ ?', '')
      time = tonumber(string.match(list, '^%d+') or 'inf')
    end
    s.fires = head .. list
    move_on(s)
  end
  count_lists(s, was_low, false)
end
for i = 3, #ARGV do
  local s = read_schedule(ARGV[i])
  if not s then
    replies[i - 2] = 'GONE'
  elseif change == 'remove' then
    local set = string.match(s.spec, 'set=(%S+)')
    gone[set] = gone[set] or {}
    gone[set][s.name] = true
    remove_schedule(s)
    replies[i - 2], changed = 'OK 0', true
  else
    local before = s.state
    if change == 'pause' and (before == 'active' or before == 'dry') then
      local was_low = is_low(s)
      remove_timer(s)
      s.state = 'paused'
      count_lists(s, was_low, before == 'dry')
    elseif change == 'resume' and before == 'paused' then
      resume(s)
    end
    if s.state ~= before then
      write_schedule(s)
      place_timer(s)
      changed = true
    end
    replies[i - 2] = 'OK ' .. int(s.state == 'active' and s.next or 0)
  end
end
for set, names in pairs(gone) do
  local kept, listed, revision = {}, read_set(set)
  for _, name in ipairs(listed) do
    kept[#kept + 1] = not names[name] and name or nil
  end
  write_set(set, kept, revision)
end
return {finish(changed), replies}

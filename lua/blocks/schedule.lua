-- Schedules, their sets, timers and ticks.

--- block: schedule_record
-- A schedule is a field `schedule:NAME` of META, a timer in SCHEDULED or READY (a byte 4 and the name), and the payload
-- of its ticks in MESSAGES under the same member. A cron's next fires are in the field `fires:NAME` of META.
--   schedule:NAME  '<state> <next> <last> <since> <made> <missed> <overlapped> <paused> <triggered> <resumed>
--                  <version>', LF, nominal times of ticks that may be alive, LF, spec words, LF, options of ticks, LF,
--                  pattern
--   fires:NAME     '<tzdata version> <last listed> <1: there are no more>', LF, fires in ms
-- A timer that waits for nothing (paused, dry, ended) stands at NEVER, so that lengths count each member of MESSAGES.
--- use: timer
--- use: fire_list
--- use: list_counts
local function read_schedule(name)
  local text, fires = unpack(redis.call('HMGET', META, 'schedule:' .. name, 'fires:' .. name))
  local s = text and parse_schedule(name, text, fires)
  if s then
    s.stored = fires
  end
  return s
end

--- block: timer
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

--- block: fire_list
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

--- block: list_counts
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

--- block: schedule_sets
-- META's schedule_sets has the names of all sets; schedules:SET the set's revision and the names of its schedules. Both
-- are sorted, one name a line. A set may have 10,000 names of 100 bytes: no call reads them one by one, and each copy
-- of the text costs.
local MOST_SETS = 1000
local function read_sets()
  local sets = {}
  for set in string.gmatch(redis.call('HGET', META, 'schedule_sets') or '', '[^\n]+') do
    sets[#sets + 1] = set
  end
  return sets
end
local function read_set(name) -- text: as stored, false if there is no such set; first: where the names begin
  local set = {name = name, text = redis.call('HGET', META, 'schedules:' .. name)}
  set.revision = tonumber(string.match(set.text or '', '^%d*'))
  set.first = (string.find(set.text or '', '\n', 1, true) or 0) + 1
  return set
end
-- Where the line of this name begins, or would begin; and whether it is there.
local function find_name(set, name)
  local text = set.text or ''
  local low, high = set.first, #text + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    local before = string.reverse(string.sub(text, math.max(low, middle - 101), middle - 1))
    local start = middle + 1 - (string.find(before, '\n', 1, true) or #before + 1)
    local stop = string.find(text, '\n', middle, true) or #text + 1
    if string.sub(text, start, stop - 1) < name then
      low = stop + 1
    else
      high = start
    end
  end
  low = math.min(low, #text + 1)
  return low, string.sub(text, low, low + #name) == name .. (low + #name <= #text and '\n' or '')
end
local function find_listed(set, name) -- as find_name; also where a server with another locale has sorted the names
  local at, found = find_name(set, name)
  local start = not found and string.find((set.text or '') .. '\n', '\n' .. name .. '\n', 1, true)
  return start and start + 1 or at, found or start and true
end

--- block: schedule_spec
-- Reads one schedule as a caller gives it. Returns it with its spec in one order of words; or nil and the reason.
local spec_ranges = {every = {10, 3155760000000}, anchor = {0, 9007199254740991}, within = {1, 3155760000000},
  max = {1, 100000}, jitter = {1, 3155760000000}, start = {0, 9007199254740991}, ['end'] = {0, 9007199254740991},
  limit = {1, 1000000000000000}}
local spec_forms = {missed = '^one$ ^skip$ ^all$', overlap = '^allow$ ^skip$ ^replace$', zone = '^[%w_/+-]+$'}
local function read_spec(text)
  local given = {set = set}
  for word in string.gmatch(text, '[^ ]+') do
    local name, value = string.match(word, '^(%l+)=(.+)$')
    local range = spec_ranges[name or '']
    if given[name or ''] then return nil, name .. ' is given twice' end
    if range then
      local number = #value <= 16 and string.find(value, '^%d+$') and tonumber(value)
      if not number or number < range[1] or number > range[2] then
        return nil, name .. ' must be ' .. int(range[1]) .. ' to ' .. int(range[2])
      end
      given[name] = int(number)
    elseif value == 'wait' and name == 'overlap' then
      return nil, 'overlap=wait is not there yet: it needs limits per key. Use overlap=skip'
    elseif spec_forms[name or ''] then
      for form in string.gmatch(spec_forms[name], '[^ ]+') do
        given[name] = given[name] or #value <= 64 and string.find(value, form) and value
      end
      if not given[name] then
        return nil, name .. ' must be ' .. ({missed = 'one, skip or all', overlap = 'allow, skip or replace',
          zone = 'the IANA name of a time zone'})[name]
      end
    else
      return nil, 'spec: words of every=MS, anchor=MS, zone=NAME, missed=one|skip|all, within=MS, max=N, '
        .. 'overlap=allow|skip|replace, jitter=MS, start=MS, end=MS, limit=N'
    end
  end
  return given
end
local function judge_options(text) -- as ATTRS keeps them; or nil and the reason
  local asked, why = read_options(text)
  if not asked then return nil, why end
  for word in string.gmatch(text, '[^ ]+') do
    local name = string.match(word, '^[%l_]+')
    if name ~= 'max_attempts' and name ~= 'on_expire' and not string.find(word, '^expires=%+') then
      return nil, 'ticks take the options max_attempts=N, expires=+MS and on_expire=dead|drop'
    end
  end
  return asked.stored
end
--- use: judge_fires
local function judge_schedule(name, spec, pattern, options, fires, payload)
  if not is_name(name) then return nil, 'name must be 1 to 100 letters, digits and . _ - : /' end
  local given, why = read_spec(spec)
  if not given then return nil, why end
  if given.every and (given.zone or pattern ~= '' or fires ~= '') or not given.every and not given.zone then
    return nil, 'give either every, or zone with a pattern and fires'
  end
  if not given.every and (#pattern < 1 or #pattern > 256 or string.find(pattern, '%c') or given.anchor) then
    return nil, 'pattern must have 1 to 256 bytes, none of them a control byte, and no anchor'
  end
  if given.jitter and given.every and tonumber(given.jitter) >= tonumber(given.every) then
    return nil, 'jitter must be below every'
  end
  if given['end'] and tonumber(given['end']) < tonumber(given.start or 0) then
    return nil, 'end must not be before start'
  end
  if given.max and given.missed ~= 'all' then return nil, 'max needs missed=all' end
  local stored, refusal = judge_options(options)
  if not stored then return nil, refusal end
  local list = given.every and '' or judge_fires(fires)
  if not list then
    return nil, fires_form
  end
  local words = {}
  for _, word in ipairs({'set', 'every', 'anchor', 'zone', 'missed', 'within', 'max', 'overlap', 'jitter', 'start',
    'end', 'limit'}) do
    words[#words + 1] = given[word] and word .. '=' .. given[word]
  end
  local s = parse_schedule(name, 'active 0 0 0 0 0 0 0 0 0 0\n\n' .. table.concat(words, ' ') .. '\n' .. stored .. '\n'
    .. pattern, list)
  s.payload = payload
  return s
end
--- use: pop_fires
-- Sets the first fire after this time, and not before the start.
local function first_fire(s, after)
  local before = math.max(after, (spec_ms(s, 'start') or 0) - 1)
  if s.every then
    local anchor = spec_ms(s, 'anchor') or 0
    s.last = anchor + math.floor((before - anchor) / s.every) * s.every
  else
    pop_fires(s, before)
  end
  move_on(s)
  s.last = after -- and not the start: a change may make it earlier
end

--- block: judge_fires
local fires_form = "fires must be '<tzdata version> <0 or 1>', LF, and at most 512 unix ms, ascending"
local function judge_fires(text) -- as `fires:NAME` keeps them; or nil
  local version, final, list = string.match(text, '^([%w._+-]+) ([01])\n([%d ]*)$')
  if not version or #version > 32 then return nil end
  local last, count, bytes = '0', 0, -1
  for time in string.gmatch(list, '%d+') do -- compares texts: numbers of equal length have their order
    if #time > 15 or count == 512 or string.byte(time) == 48 or #time < #last or #time == #last and time <= last then
      return nil
    end
    last, count, bytes = time, count + 1, bytes + #time + 1
  end
  if #list ~= math.max(0, bytes) then -- more than a blank between two
    list = string.match(string.gsub(list, ' +', ' '), '^ ?(.-) ?$')
  end
  return version .. ' ' .. last .. ' ' .. final .. '\n' .. list
end

--- block: change_set
-- Adds names to a set and removes others; returns whether it has none then. A set without schedules keeps its revision:
-- an older one stays refused.
local function change_set(set, added, removed, revision)
  local text, edits, parts = set.text or '', {}, {}
  for _, name in ipairs(added) do
    local start, found = find_name(set, name)
    edits[#edits + 1] = not found and {start, name, 0} or nil
  end
  for _, name in ipairs(removed) do
    local start, found = find_listed(set, name)
    edits[#edits + 1] = found and {start, name, #name + 1} or nil
  end
  table.sort(edits, function(a, b) return a[1] < b[1] or a[1] == b[1] and a[2] < b[2] end)
  local at, is_empty = set.first, set.first > #text
  revision = revision or set.revision
  if #edits > 0 or revision ~= set.revision or not set.text then
    for _, edit in ipairs(edits) do
      local before = string.sub(text, at, edit[1] - 1)
      before = string.sub(before, -1) == '\n' and string.sub(before, 1, -2) or before
      parts[#parts + 1] = before ~= '' and before or nil
      parts[#parts + 1] = edit[3] == 0 and edit[2] or nil
      at = edit[1] + edit[3]
    end
    parts[#parts + 1] = at <= #text and string.sub(text, at) or nil
    is_empty = #parts == 0
    text = (revision and int(revision) or '') .. '\n' .. table.concat(parts, '\n')
    redis.call('HSET', META, 'schedules:' .. set.name, text)
  end
  return is_empty
end
local function add_set(sets, name)
  sets[#sets + 1] = name
  table.sort(sets)
  redis.call('HSET', META, 'schedule_sets', table.concat(sets, '\n'))
end
local function forget_set(sets, name)
  local others = {}
  for _, other in ipairs(sets) do
    others[#others + 1] = other ~= name and other or nil
  end
  redis.call('HDEL', META, 'schedules:' .. name)
  redis.call('HSET', META, 'schedule_sets', table.concat(others, '\n'))
end

--- block: pop_fires
local function pop_fires(s, before) -- drops the fires that are at or before this time
  local list = open_list(s.fires)
  s.fires = drop_fires(list, count_until(list, before))
end

--- block: pop_paused
local function pop_paused(s) -- fires until the resume count as paused
  local list = open_list(s.fires)
  local over = count_until(list, math.min(s.resumed, s.last_fire))
  if over > 0 then
    s.last, s.paused, s.fires = fire_at(list, over), s.paused + over, drop_fires(list, over)
  end
end

--- block: place_timer
-- Timers that left SCHEDULED for READY: leave_ready removes them, once a call.
local promoted = {}
--- use: leave_ready
local function place_timer(s, old) -- moves a schedule's timer to its due time; old: nil of a new schedule
  if redis.call('ZADD', SCHEDULED, int(due_of_timer(s)), TIMER .. s.name) == 1 and old then
    promoted[TIMER .. s.name] = true
  end
end
local function remove_schedule(s) -- and its timer, but none of its ticks
  local member = TIMER .. s.name
  if redis.call('ZREM', SCHEDULED, member) == 0 then
    promoted[member] = true
  end
  redis.call('HDEL', MESSAGES, member)
  redis.call('HDEL', META, 'schedule:' .. s.name, 'fires:' .. s.name)
  redis.call('HINCRBY', META, 'schedules', '-1')
  count_lists(nil, is_low(s), s.state == 'dry')
end

--- block: leave_ready
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

--- block: due_of_ready_timer
-- Of a timer that leaves READY unfired: its next fire, without the jitter. Its entry may have another one, from before
-- a refill. A claim that comes too early moves it on.
local function due_of_ready_timer(member)
  local record = redis.call('HGET', META, 'schedule:' .. string.sub(member, 2))
  return string.match(record or '', '^active (%d+) ') or int(now)
end

--- block: live_ticks
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

--- block: remove_waiting
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
--- use: leave_ready
leave_ready(ready)
for from = 1, #gone, 1000 do
  redis.call('HDEL', MESSAGES, unpack(gone, from, math.min(from + 999, #gone)))
  redis.call('HDEL', ATTRS, unpack(gone, from, math.min(from + 999, #gone)))
end
for from = 1, #scheduled, 2000 do
  local to = math.min(from + 1999, #scheduled)
  redis.call('ZADD', SCHEDULED, unpack(scheduled, from, to))
  redis.call('ZREMRANGEBYRANK', SCHEDULED, '0', (to - from - 1) / 2)
end

--- block: make_tick
redis.call('HSET', MESSAGES, id, s.payload)
redis.call('HSET', ATTRS, id, '0 0 - tick' .. (s.options ~= '' and ' ' or '') .. s.options .. '\n')
redis.call('ZADD', SCHEDULED, int(now), id)
if s.overlap ~= 'allow' then
  s.live = s.live .. (s.live ~= '' and ' ' or '') .. string.match(id, '%d+$')
end

--- block: may_make_ticks
-- Neither writes: a wrong type, or a consumer without the rights to make ticks, stops the claim before its first write.
redis.call('ZCARD', DEAD); redis.call('HSETNX', MESSAGES, '\0' .. string.rep('-', 70), '')

--- block: fire
-- A claim that reaches a timer makes the tick, grants it, and moves the timer: one script, so that no tick is lost or
-- doubled. One claim takes 64 timers at most. It takes no further one once it has computed the jitter of 1,000 fires,
-- or looked for so many earlier ticks. What it leaves is due: the next claim goes on.
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
    following = first == due and #fires + 1 - second >= 3583 and tonumber(next_fire)
  end
  if following and following > now and tonumber(due) <= now and not string.find(options, 'expires=', 1, true) then
    local id, next_due = name .. '@' .. due, string.format('%d', following)
    if redis.call('HSETNX', MESSAGES, id, payload) == 1 then
      options = 'tick' .. (options ~= '' and ' ' or '') .. options
      redis.call('HSET', ATTRS, id, '0 0 - ' .. options .. '\n')
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

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

--- block: make_tick
redis.call('HSET', MESSAGES, id, s.payload)
redis.call('HSET', ATTRS, id, '0 0 - tick' .. (s.options ~= '' and ' ' or '') .. s.options .. '\n')
redis.call('ZADD', SCHEDULED, int(now), id)
--- use: note_tick
if s.overlap ~= 'allow' then
  s.live = s.live .. (s.live ~= '' and ' ' or '') .. string.match(id, '%d+$')
end

#!lua flags=no-writes
-- Made by scripts/lua-dist from lua/schedules.lua and lua/blocks: change these, not this file.
-- schedules: returns a page of the queue's schedules, in the order of their sets and names; or one of them.
-- KEYS   the ten of the queue
-- ARGV   now | cursor: empty for the first page, then as replied | limit: 1 to 1,000
--        | low: only crons whose list needs fires, or empty
--        now | name
-- Reply  {header, next cursor or empty at the end, {{name, state, next, last, since, made, missed, overlapped, paused,
--        triggered, version, spec, options, pattern, tzdata version, last listed fire, 1 if there are no more,
--        number of listed fires}, ...}}; with a name, which has no cursor, also the payload and the listed fires
--        state: active, paused, dry or ended
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE
-- Cost   O(limit + sets); it looks at 64 schedules at most: then the page is shorter, and has a next one
-- Again  harmless

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
local cursor, limit, low = ARGV[2], tonumber(ARGV[3] or 1), ARGV[4] == 'low'
if #ARGV ~= 2 and #ARGV ~= 4 or not limit or limit < 1 or limit > 1000 or limit % 1 ~= 0
  or #ARGV == 4 and not low and ARGV[4] ~= '' then
  return redis.error_reply('BADARGS schedules takes now, cursor (as replied, or empty), limit (1 to 1000), low or '
    .. 'empty; or now, name')
end
if (layout or '') < '4' then return {finish(false, true), '', {}} end
-- A schedule is a field `schedule:NAME` of META, a timer in SCHEDULED or READY (a byte 4 and the name), and the payload
-- of its ticks in MESSAGES under the same member. A cron's next fires are in the field `fires:NAME` of META.
--   schedule:NAME  '<state> <next> <last> <since> <made> <missed> <overlapped> <paused> <triggered> <resumed>
--                  <version>', LF, nominal times of ticks that may be alive, LF, spec words, LF, options of ticks, LF,
--                  pattern
--   fires:NAME     '<tzdata version> <last listed> <1: there are no more>', LF, fires in ms
-- A timer that waits for nothing (paused, dry, ended) stands at NEVER, so that lengths count each member of MESSAGES.
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
local function read_schedule(name)
  local text, fires = unpack(redis.call('HMGET', META, 'schedule:' .. name, 'fires:' .. name))
  local s = text and parse_schedule(name, text, fires)
  if s then
    s.stored = fires
  end
  return s
end
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
local items, looked = {}, 0
local function add(s)
  local version, last, final = string.match(s.fires or '', '^(%S+) (%d+) (%d)\n')
  local list = version and open_list(s.fires)
  items[#items + 1] = {s.name, s.state, s.next, s.last, s.since, s.made, s.missed, s.overlapped, s.paused, s.triggered,
    int(s.version), s.spec, s.options, s.pattern, version or '', tonumber(last or 0), tonumber(final or 0),
    list and list.n or 0}
  return list and string.sub(s.fires, list.from) or ''
end
if #ARGV == 2 then
  local s = read_schedule(ARGV[2])
  if s then
    local list = add(s)
    items[1][19], items[1][20] = redis.call('HGET', MESSAGES, TIMER .. s.name) or '', list
  end
  return {finish(false, true), '', items}
end
local after_set, after_name = string.match(cursor, '^([^ ]+) ([^ ]+)$')
local last_looked
for _, name_of_set in ipairs(read_sets()) do
  if not after_set or name_of_set >= after_set then
    local set = read_set(name_of_set)
    local at = set.first
    if name_of_set == after_set then
      local start, found = find_listed(set, after_name)
      at = start + (found and #after_name + 1 or 0)
    end
    for name in string.gmatch(string.sub(set.text or '', at, at + 101 * 65), '[^\n]+') do
      if #items == limit or looked == 64 then return {finish(false, true), last_looked, items} end
      local s = read_schedule(name)
      if s and (not low or is_low(s)) then
        add(s)
      end
      looked, last_looked = looked + 1, name_of_set .. ' ' .. name
    end
  end
end
return {finish(false, true), '', items}

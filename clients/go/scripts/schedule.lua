#!lua
-- Made by scripts/lua-dist from lua/schedule.lua and lua/blocks: change these, not this file.
-- schedule: declares the schedules of a set: creates and changes those that are given, and with prune removes the
--           others of the set. One call, all or nothing. The queue gets layout 4, which older releases refuse.
-- KEYS   the ten of the queue; schedule makes them if they do not exist
-- ARGV   now | set | revision: 0 to 2^53, or empty | words, or empty: prune; now (created ones make a tick at once);
--        dry_run (writes nothing); forget (the set, if it has no schedules after this call); recompute (one whose last
--        fire is ahead of now, because the clock was set back, begins anew)
--        | per schedule, up to 24: name, spec, pattern, options, fires, payload. Their fires have up to 24,576 bytes.
--        With prune up to 1,000, of which all but 24 have a name and empty others: such a schedule stays as it is
--        set, name: 1 to 100 letters, digits and . _ - : /
--        spec: words of every=10..3155760000000 ms, anchor=MS; or zone=NAME with a cron pattern; missed=one|skip|all,
--        within=MS, max=1..100000, overlap=allow|skip|replace, jitter=MS below every, start=MS, end=MS, limit=N
--        pattern: of a cron, for people and for those that list its fires; else empty
--        options: words of max_attempts=N, expires=+MS, on_expire=dead|drop
--        fires: of a cron: '<tzdata version> <1: there are no more, else 0>', LF, at most 512 fires in ms, ascending,
--        with a blank between; else empty
-- Reply  {header, OK | STALE <revision> | INVALID,
--        {CREATED <next> | CHANGED <next> | KEPT <next> | STAYS | INVALID <why>, ...},
--        {name, ... of removed ones}, more}
--        next: 0 if it never fires. STALE and INVALID: nothing was written
--        A call removes 24 at most, a dry run names 1,000; more is 1 if others are left to remove, else 0
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, OOM: nothing was written
-- Cost   O(given and removed schedules, their fires and log n; bytes of the set's names)
-- Again  KEPT; with now no further tick

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
local function due_ms(text) -- '<unix ms>' or '+<delay ms>' as unix ms; nil for other text and beyond 100 years
  local ahead = string.byte(text) == 43
  if #text > (ahead and 16 or 15) or not string.find(text, '^%+?%d+$') then return nil end
  local due = tonumber(text) + (ahead and now_up or 0)
  return due <= now_up + 3155760000000 and due or nil
end
local set, revision, words, count = ARGV[2], ARGV[3], ARGV[4], (#ARGV - 4) / 6
local asks = {}
for word in string.gmatch(words or '', '[^ ]+') do
  asks[word] = true
end
local words_known = 0
for _, word in ipairs({'prune', 'now', 'dry_run', 'forget', 'recompute'}) do
  words_known = words_known + (asks[word] and 1 or 0)
end
-- `stays`: prune does not remove these. `whole`: how many are given with more than a name.
local stays, whole, fires_bytes = {}, 0, 0
for i = 5, count <= 1000 and #ARGV or 0, 6 do
  stays[ARGV[i]] = true
  if not asks.prune or table.concat(ARGV, '', i + 1, math.min(i + 5, #ARGV)) ~= '' then
    whole, fires_bytes = whole + 1, fires_bytes + #(ARGV[i + 4] or '')
  end
end
local function is_name(text) return #text >= 1 and #text <= 100 and not string.find(text, '[^%w%._:/-]') end
if #ARGV < 4 or count % 1 ~= 0 or count > 1000 or whole > 24 or fires_bytes > 24576 or not is_name(set)
  or #revision > 16
  or not string.find(revision, '^%d*$') or tonumber(revision ~= '' and revision or 0) > 9007199254740992
  or select(2, string.gsub(words, '[^ ]+', '')) ~= words_known then
  return redis.error_reply('BADARGS schedule takes now, set (1 to 100 letters, digits and . _ - : /), revision (0 to '
    .. '2^53, or empty), words of prune, now, dry_run, forget, recompute, then name, spec, pattern, options, fires, '
    .. 'payload for 0 to 24 schedules, whose fires have at most 24576 bytes; with prune also up to 1000 names, '
    .. 'each with five empty texts')
end
if slash ~= '' and not epoch then -- only remap creates a partition beside the home
  return redis.error_reply('BEHIND this partition has ' .. (epoch and 'an old' or 'no') .. ' map of the queue: call '
    .. 'remap here with forward and the map in meta of the home, and repeat the call')
end
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
local function create() -- creates the queue, if it does not exist
  if layout then return end
  local placeholder = '\0' .. string.rep('-', 70)
  for i, read in ipairs({'ZCARD', 'LLEN', 'ZCARD', 'HLEN', 'HLEN', 'HLEN', 'ZCARD', 'ZCARD', 'ZCARD'}) do
    redis.call(read, KEYS[i])
  end
  local seed = int(now_us) .. base .. table.concat(ARGV, ' ', 1, math.min(#ARGV, 4))
  layout, incarnation = '1', string.sub(redis.sha1hex(seed), 1, 16)
  for _, zset in ipairs({SCHEDULED, LEASES, DEAD, RECENT, NODES}) do
    redis.call('ZADD', zset, '+inf', placeholder)
  end
  for _, hash in ipairs({CLAIMS, MESSAGES, ATTRS}) do
    redis.call('HSET', hash, placeholder, '')
  end
  if redis.call('LINDEX', READY, 0) ~= placeholder then
    redis.call('LPUSH', READY, placeholder)
  end
  -- Last, for a queue without a layout does not exist.
  redis.call('HSET', META, placeholder, '', 'incarnation', incarnation, 'layout', layout)
  redis.pcall('PUBLISH', base .. ':notice', incarnation) -- for workers on patterns; a hint, as all notices
end
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
-- Timers that left SCHEDULED for READY: leave_ready removes them, once a call.
local promoted = {}
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
-- The options of a message: words NAME=VALUE.
local ranges = {max_attempts = 1000000, cost = 1000000, window = 2592000000, max_wait = 3155760000000,
  undo = 9999999999999}
local option_forms = 'one of max_attempts=1..1000000, on_conflict=keep|reschedule|replace|next, '
  .. 'traceparent=00-TRACE-SPAN-FLAGS, expires=MS|+MS, on_expire=dead|drop, cost=1..1000000, window=1..2592000000 ms, '
  .. 'max_wait=1..3155760000000 ms, reuse, revive, undo=MS'
local function read_options(text) -- the values by name; or nil and the reason
  local asked = {on_conflict = 'keep'}
  for word in string.gmatch(text, '[^ ]+') do
    local name, value = string.match(word, '^([%l_]+)=(.+)$')
    if word == 'reuse' or word == 'revive' then
      asked[word] = true
    elseif ranges[name or ''] then
      local number = string.find(value, '^%d+$') and tonumber(value)
      if not number or number < 1 or number > ranges[name] then
        return nil, name .. ' must be 1 to ' .. int(ranges[name])
      end
      asked[name] = int(number)
    elseif name == 'on_conflict' and (value == 'keep' or value == 'reschedule' or value == 'replace'
      or value == 'next') then
      asked.on_conflict = value
    elseif name == 'expires' then
      asked.expires, asked.expires_ms = value, due_ms(value)
      if not asked.expires_ms or string.find(value, '^%+0*$') then
        return nil, 'expires must be + and 1 to 3155760000000 ms after the due time, or unix ms that have not passed'
      end
    elseif name == 'on_expire' and (value == 'drop' or value == 'dead') then
      asked.on_expire = value
    elseif name == 'traceparent' then
      local trace, span = string.match(value, '^00%-([0-9a-f]+)%-([0-9a-f]+)%-[0-9a-f][0-9a-f]$')
      if not trace or #trace ~= 32 or #span ~= 16 or not string.find(trace, '[^0]')
        or not string.find(span, '[^0]') then
        return nil, 'option: ' .. option_forms
      end
      asked.traceparent = value
    else
      return nil, 'option: ' .. option_forms
    end
  end
  if asked.on_expire and not asked.expires then return nil, 'on_expire needs expires' end
  if asked.max_wait and asked.on_conflict == 'keep' then
    return nil, 'max_wait needs on_conflict=reschedule, replace or next'
  end
  if asked.revive and asked.on_conflict ~= 'replace' and asked.on_conflict ~= 'next' then
    return nil, 'revive needs on_conflict=replace or next'
  end
  asked.due_by = asked.max_wait and int(now_up + asked.max_wait)
  local words = {} -- as ATTRS keeps them, in one order
  for _, name in ipairs({'max_attempts', 'traceparent', 'expires', 'on_expire', 'cost', 'window', 'due_by'}) do
    words[#words + 1] = asked[name] and name .. '=' .. asked[name]
  end
  asked.stored = table.concat(words, ' ')
  return asked
end
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
local function pop_fires(s, before) -- drops the fires that are at or before this time
  local list = open_list(s.fires)
  s.fires = drop_fires(list, count_until(list, before))
end
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
redis.call('HLEN', MESSAGES); redis.call('HLEN', ATTRS); redis.call('HLEN', CLAIMS)
local old_set, sets = read_set(set), read_sets()
local stored = old_set.revision
if revision ~= '' and stored and tonumber(revision) < stored then
  return {finish(false), 'STALE ' .. int(stored), {}, {}, 0}
end
if not old_set.text and #sets >= MOST_SETS then
  return redis.error_reply('BADARGS a queue has at most ' .. MOST_SETS .. ' sets of schedules: forget an empty one')
end

-- First everything is judged, and nothing is written.
local max_payload = tonumber(redis.call('HGET', META, 'max_payload_bytes') or 1048576)
local removed, more = {}, 0
local most = asks.dry_run and 1000 or 24
local listed = string.sub(old_set.text or '', old_set.first, old_set.first + 101 * (most + 1002)) -- so many decide it
for name in string.gmatch(asks.prune and listed or '', '[^\n]+') do
  if #removed == most and not stays[name] then
    more = 1
    break
  elseif not stays[name] then
    removed[#removed + 1] = name
  end
end
local total = tonumber(redis.call('HGET', META, 'schedules') or 0) - #removed -- they make room
local replies, given, declared, refused, longest = {}, {}, {}, false, 0
-- The reply of a schedule that is stored as this call gives it, word for word; nil or false of any other. Each start of
-- a service sends what is stored: this neither reads the fires nor judges anything.
local function kept(name, spec, pattern, options, _, payload)
  local text = not asks.recompute and redis.call('HGET', META, 'schedule:' .. name)
  local words = '\nset=' .. set .. ' ' .. spec .. '\n' .. options .. '\n' .. pattern
  return text and #payload <= max_payload and string.sub(text, -#words) == words
    and redis.call('HGET', MESSAGES, TIMER .. name) == payload and 'KEPT ' .. string.match(text, '^%a+ (%d+) ')
end
for i = 1, count do
  local at = 6 * i - 2
  local name = ARGV[at + 1]
  local is_name_only = asks.prune and table.concat(ARGV, '', at + 2, at + 6) == ''
  local known = not declared[name] and (is_name_only and 'STAYS' or kept(unpack(ARGV, at + 1, at + 6)))
  local s, why, old
  if not known then
    s, why = judge_schedule(unpack(ARGV, at + 1, at + 6))
    old = s and read_schedule(s.name)
  end
  if known then
    declared[name], replies[i] = true, known
  elseif s and declared[s.name] then
    why = 'this call declares ' .. s.name .. ' twice'
  elseif old and string.match(old.spec, 'set=(%S+)') ~= set then
    why = s.name .. ' belongs to the set ' .. string.match(old.spec, 'set=(%S+)')
  elseif s and #s.payload > max_payload then
    why = 'payload has ' .. #s.payload .. ' bytes, the limit of this queue is ' .. int(max_payload)
  elseif epoch or slash ~= '' then
    why = 'a queue of several partitions has no schedules: declare them at a queue of one partition, whose consumer '
      .. 'forwards the ticks'
  elseif s then
    total = total + (old and 0 or 1)
    why = total > 10000 and 'this queue would have more than 10000 schedules'
  end
  if why then
    replies[i], refused = 'INVALID ' .. why, true
  elseif s then
    declared[s.name], given[i], s.old = true, s, old
    longest = math.max(longest, #s.payload)
    local anew = asks.recompute and old and old.last > now
    s.same = old and not anew and old.spec == s.spec and old.pattern == s.pattern and old.options == s.options
      and redis.call('HGET', MESSAGES, TIMER .. s.name) == s.payload
    first_fire(s, math.max(now, old and not anew and old.last or 0))
    if s.state == 'dry' and not s.same then
      replies[i], refused = 'INVALID fires must have a time that is ahead, or say that there are no more', true
    end
  end
end
if refused then
  for i = 1, count do
    replies[i] = replies[i] or 'KEPT 0'
  end
  return {finish(false), 'INVALID', replies, {}, 0}
end

local changed, created = not asks.dry_run, {}
if changed then
  create()
  if next(given) and layout < '4' then
    layout = '4'
    redis.call('HSET', META, 'layout', layout)
  end
end
local function store(s, old)
  redis.call('HSET', MESSAGES, TIMER .. s.name, s.payload)
  if not old then
    created[#created + 1] = s.name
  end
  if asks.now and not old then
    local id = s.name .. '@' .. int(now)
    if redis.call('HEXISTS', MESSAGES, id) == 0 then
      redis.call('HSET', MESSAGES, id, s.payload)
      redis.call('HSET', ATTRS, id, '0 0 - tick' .. (s.options ~= '' and ' ' or '') .. s.options .. '\n')
      redis.call('ZADD', SCHEDULED, int(now), id)
      -- A tick is a new message: its life begins.
      if layout > '4' and redis.call('HGET', META, 'life_keep_ms') then
        redis.call('HSET', ATTRS, '\7' .. id, int(now) .. ' tick ' .. string.match(id, '%d+$')) -- LIFE_MARK
      end
      if s.overlap ~= 'allow' then
        s.live = s.live .. (s.live ~= '' and ' ' or '') .. string.match(id, '%d+$')
      end
      s.triggered = s.triggered + 1
    end
  end
  count_lists(s, old and is_low(old) or false, old and old.state == 'dry' or false)
  write_schedule(s)
  if s.every and old and not old.every then
    redis.call('HDEL', META, 'fires:' .. s.name)
  end
  if string.find(s.options, 'expires=', 1, true) then -- claim looks for messages that have expired
    redis.call('HSET', META, 'expiring', '1', 'selective', '1')
  end
  place_timer(s, old)
end
for i, s in pairs(given) do
  local old = s.old
  s.since, s.version = s.next, math.max(now_us, old and old.version + 1 or 0)
  if old then
    s.live, s.triggered = old.live, old.triggered
    if old.state == 'paused' and s.state ~= 'ended' then -- until somebody resumes it
      s.state = 'paused'
    end
  end
  replies[i] = s.same and 'KEPT ' .. int(old.next) or (old and 'CHANGED ' or 'CREATED ') .. int(s.next)
  if changed and not s.same then
    store(s, old)
  end
end
if changed then
  for _, name in ipairs(removed) do
    local s = read_schedule(name)
    if s then
      remove_schedule(s)
    end
  end
  leave_ready(promoted)
  if #created > 0 then
    redis.call('HINCRBY', META, 'schedules', #created)
  end
  local is_empty = change_set(old_set, created, removed, tonumber(revision))
  if asks.forget and is_empty then
    forget_set(sets, set)
  elseif not old_set.text then
    add_set(sets, set)
  end
  local largest = redis.call('HGET', META, 'largest_payload_bytes')
  largest = largest and (string.find(largest, '^%d+$') and tonumber(largest) or 16777216) or 4096
  if longest > largest then -- of all payloads that were ever stored, as a power of two: claim plans its reads by it
    local bytes = 4096
    while bytes < longest do
      bytes = 2 * bytes
    end
    redis.call('HINCRBY', META, 'largest_payload_bytes', int(bytes - (largest > 4096 and largest or 0)))
  end
end
return {finish(changed), 'OK', replies, removed, more}

#!lua
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

--- use: prelude
--- use: due_ms
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
--- use: needs_map
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
--- use: create
--- use: schedule_record
--- use: schedule_sets
--- use: place_timer
--- use: change_set
--- use: read_options
--- use: schedule_spec
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
      --- use: make_tick
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
  --- use: grow_largest
end
return {finish(changed), 'OK', replies, removed, more}

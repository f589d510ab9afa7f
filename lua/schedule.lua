#!lua
-- schedule: declares the schedules of a set: creates and changes those that are given, and with prune removes the
--           others of the set. One call, all or nothing. The queue gets layout 4, which older releases refuse.
-- KEYS   the ten of the queue; schedule makes them if they do not exist
-- ARGV   now | set | revision: 0 to 2^53, or empty | words, or empty: prune; now (created ones make a tick at once);
--        dry_run (writes nothing) | per schedule, up to 1,000: name, spec, pattern, options, fires, payload
--        set, name: 1 to 100 letters, digits and . _ - : /
--        spec: words of every=10..3155760000000 ms, anchor=MS; or zone=NAME with a cron pattern; missed=one|skip|all,
--        within=MS, max=1..100000, overlap=allow|skip|replace, jitter=MS below every, start=MS, end=MS, limit=N
--        pattern: of a cron, for people and for those that list its fires; else empty
--        options: words of max_attempts=N, expires=+MS, on_expire=dead|drop
--        fires: of a cron: '<tzdata version> <1: there are no more, else 0>', LF, at most 512 fires in ms, ascending,
--        with a blank between; else empty
-- Reply  {header, OK | STALE <revision> | INVALID,
--        {CREATED <next> | CHANGED <next> | KEPT <next> | INVALID <why>, ...}, {name, ... of removed ones}}
--        next: 0 if it never fires. STALE and INVALID: nothing was written
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, OOM: nothing was written
-- Cost   O(schedules of the set log n)
-- Again  KEPT; with now no further tick

--- use: prelude
--- use: due_ms
local set, revision, words, count = ARGV[2], ARGV[3], ARGV[4], (#ARGV - 4) / 6
local asks = {}
for word in string.gmatch(words or '', '[^ ]+') do
  asks[word] = true
end
local known = (asks.prune and 1 or 0) + (asks.now and 1 or 0) + (asks.dry_run and 1 or 0)
local function is_name(text) return #text >= 1 and #text <= 100 and not string.find(text, '[^%w%._:/-]') end
if #ARGV < 4 or count % 1 ~= 0 or count > 1000 or not is_name(set) or #revision > 16
  or not string.find(revision, '^%d*$') or tonumber(revision ~= '' and revision or 0) > 9007199254740992
  or select(2, string.gsub(words, '[^ ]+', '')) ~= known then
  return redis.error_reply('BADARGS schedule takes now, set (1 to 100 letters, digits and . _ - : /), revision (0 to '
    .. '2^53, or empty), words of prune, now, dry_run, then name, spec, pattern, options, fires, payload for 0 to 1000 '
    .. 'schedules')
end
--- use: needs_map
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
--- use: create
--- use: schedule_record
--- use: schedule_sets
--- use: place_timer
--- use: write_set
--- use: read_options
--- use: schedule_spec
redis.call('HLEN', MESSAGES); redis.call('HLEN', ATTRS); redis.call('HLEN', CLAIMS)
local names, stored = read_set(set)
if revision ~= '' and stored and tonumber(revision) < stored then
  return {finish(false), 'STALE ' .. int(stored), {}, {}}
end

-- First everything is judged, and nothing is written.
local max_payload = tonumber(redis.call('HGET', META, 'max_payload_bytes') or 1048576)
local total = tonumber(redis.call('HGET', META, 'schedules') or 0)
if asks.prune and total + count > 10000 then -- those that this call removes make room
  local stays = {}
  for i = 5, #ARGV, 6 do
    stays[ARGV[i]] = true
  end
  for _, name in ipairs(names) do
    total = total - (not stays[name] and read_schedule(name) and 1 or 0)
  end
end
local replies, given, declared, refused, longest = {}, {}, {}, false, 0
for i = 1, count do
  local at = 6 * i - 2
  local s, why = judge_schedule(unpack(ARGV, at + 1, at + 6))
  local old = s and read_schedule(s.name)
  if s and declared[s.name] then
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
  else
    declared[s.name], given[i], s.old = true, s, old
    longest = math.max(longest, #s.payload)
    s.same = old and old.spec == s.spec and old.pattern == s.pattern and old.options == s.options
      and redis.call('HGET', MESSAGES, TIMER .. s.name) == s.payload
    first_fire(s, math.max(now, old and old.last or 0))
    if s.state == 'dry' and not s.same then
      replies[i], refused = 'INVALID fires must have a time that is ahead, or say that there are no more', true
    end
  end
end
if refused then
  for i = 1, count do
    replies[i] = replies[i] or 'KEPT 0'
  end
  return {finish(false), 'INVALID', replies, {}}
end

local removed, kept_names, changed = {}, {}, not asks.dry_run
for _, name in ipairs(names) do
  if not declared[name] then
    local list = asks.prune and removed or kept_names
    list[#list + 1] = name
  end
end
if changed then
  create()
  if #given > 0 and layout < '4' then
    layout = '4'
    redis.call('HSET', META, 'layout', layout)
  end
end
for i, s in ipairs(given) do
  local old, member = s.old, TIMER .. s.name
  kept_names[#kept_names + 1] = s.name
  if s.same then
    replies[i] = 'KEPT ' .. int(old.next)
  else
    s.since, s.version = s.next, math.max(now_us, old and old.version + 1 or 0)
    if old then
      s.live, s.triggered = old.live, old.triggered
      if old.state == 'paused' and s.state ~= 'ended' then -- until somebody resumes it
        s.state = 'paused'
      end
    end
    replies[i] = (old and 'CHANGED ' or 'CREATED ') .. int(s.next)
    if changed then
      redis.call('HSET', MESSAGES, member, s.payload)
      if old then
        remove_timer(old)
      else
        redis.call('HINCRBY', META, 'schedules', '1')
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
      place_timer(s)
    end
  end
end
if changed then
  for _, name in ipairs(removed) do
    local s = read_schedule(name)
    if s then
      remove_schedule(s)
    end
  end
  write_set(set, kept_names, tonumber(revision) or stored)
  local largest = redis.call('HGET', META, 'largest_payload_bytes')
  largest = largest and (string.find(largest, '^%d+$') and tonumber(largest) or 16777216) or 4096
  --- use: grow_largest
end
return {finish(changed), 'OK', replies, removed}

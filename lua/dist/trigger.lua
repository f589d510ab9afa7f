#!lua
-- Made by scripts/lua-dist from lua/trigger.lua and lua/blocks: change these, not this file.
-- trigger: makes ticks of a schedule by hand, without a change of its next fire: one now, or those of past fires.
-- KEYS   the ten of the queue
-- ARGV   now | name | now
--        now | name | nominal times, 1 to 100: unix ms that are not ahead, each once
--        A tick that is made now obeys the schedule's overlap. Ticks of past fires do not.
-- Reply  {header, {CREATED <id> | EXISTS <id> | OVERLAPS | INVALID <why>, ...}}
--        GONE instead of the list: no schedule, or its payload is lost
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, OOM: nothing was written
-- Cost   O(log n) a tick
-- Again  with times EXISTS; else one more tick

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
local name, is_now = ARGV[2], ARGV[3] == 'now'
if #ARGV < 3 or #ARGV > 102 or is_now and #ARGV ~= 3 then
  return redis.error_reply('BADARGS trigger takes now, name of a schedule, then now, or 1 to 100 unix ms')
end
local times = is_now and {int(now)} or {unpack(ARGV, 3)}
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
redis.call('HLEN', MESSAGES); redis.call('HLEN', ATTRS); redis.call('HLEN', CLAIMS); redis.call('ZCARD', DEAD)
redis.call('ZCARD', RECENT)
-- RECENT remembers, each until its score:
--   an id + CANCELLED or PUSHED_AGAIN   it was cancelled or purged; PUSHED_AGAIN: and pushed again since then
--   CALL_MARK attempt                   this call of push was made; + PARTLY: of its items only those below count
--   CALL_MARK attempt ' ' id            such an item
--   ENDED_MARK id                       the message ended or moved near its due; the score is that time + REPEAT_MS
--   WINDOW_MARK id                      a push gave it a window: until then it creates no message of this id
--   OUTCOME_MARK, char(64 + k), id      a message with a window ended at the score - 2^k ms; + DROPPED: it expired
--   LIFE_MARK id                        the message ended; ATTRS keeps its life under the same name
-- The fractions are part of the score. META's ended_until is the latest score of ENDED_MARK, rounded up; windows_until
-- that of WINDOW_MARK.
local CALL_MARK, ENDED_MARK, WINDOW_MARK, OUTCOME_MARK = '\3', '\4', '\5', '\6'
local CANCELLED, PUSHED_AGAIN, PARTLY, DROPPED = 0.5, 0.25, 0.5, 0.5
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
local s = read_schedule(name)
if s then
  s.payload = redis.call('HGET', MESSAGES, TIMER .. name)
end
-- A schedule that lost its payload: the next call of schedule stores it again.
if not s or not s.payload then return {finish(false), 'GONE'} end
local replies, made = {}, 0
local live = {}
if s.overlap ~= 'allow' then
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
end
for i, time in ipairs(times) do
  local nominal = #time <= 15 and string.find(time, '^%d+$') and tonumber(time)
  local id = nominal and s.name .. '@' .. int(nominal)
  if not nominal or nominal > now then
    replies[i] = 'INVALID time must be unix ms that are not ahead'
  elseif redis.call('HEXISTS', MESSAGES, id) == 1 then
    replies[i] = 'EXISTS ' .. id
  elseif is_now and s.overlap == 'skip' and #live > 0 then
    replies[i] = 'OVERLAPS'
  elseif s.overlap ~= 'allow' and select(2, string.gsub(s.live, '%d+', '')) >= 1000 then
    replies[i] = 'INVALID 1000 ticks of this schedule wait or are leased'
  else
    if is_now and s.overlap == 'replace' then
      local ids = live
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
    end
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
    local cancelled = tonumber(redis.call('ZSCORE', RECENT, id) or 0)
    if cancelled > now and cancelled % 1 == CANCELLED then -- a repeated cancel must not take the new tick
      redis.call('ZADD', RECENT, string.format('%.2f', math.floor(cancelled) + PUSHED_AGAIN), id)
    end
    replies[i], made = 'CREATED ' .. id, made + 1
  end
end
if made > 0 then
  s.triggered = s.triggered + made
  write_schedule(s)
end
return {finish(made > 0), replies}

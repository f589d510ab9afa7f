#!lua flags=allow-oom
-- purge: removes messages of one state (scheduled, ready or dead -> absent), a bounded step at a time. Timers of
--        schedules stay.
-- KEYS   the ten of the queue
-- ARGV   now | state: scheduled, ready or dead | limit: 1 to 1,000; a call takes 200 at most,
--        and fewer if timers are due before the messages
--        | perhaps only those whose time_ms (as in get) is at or before this ms; or empty: all
--        | perhaps how many timers were passed: 0, then as replied. A call passes 2,000, else all (10,000 at most)
--        | perhaps, of dead: only those that died at or after this ms
-- Reply  {header, purged, left in that state; of those that are selected; with five arguments: how many timers were
--        passed, 0 at the end}. Of scheduled with a time, left counts also timers that are behind what this call read
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(limit log n); of ready with a time one scan of the list
-- Again  takes the rest

--- use: prelude
--- use: recent_marks
--- use: trim_recent
--- use: repeat_memory
--- use: life
local state, limit, before = ARGV[2], tonumber(ARGV[3]), (ARGV[4] or '') ~= '' and ARGV[4]
local function is_number(text, pattern) return not text or #text <= 15 and string.find(text, pattern) end
if #ARGV < 3 or #ARGV > 6 or not is_number(ARGV[4], '^%d*$') or not is_number(ARGV[5], '^%d+$')
  or not is_number(ARGV[6], '^%d+$') or ARGV[6] and state ~= 'dead'
  or not (state == 'scheduled' or state == 'ready' or state == 'dead')
  or not limit or limit < 1 or limit > 1000 or limit % 1 ~= 0 then
  return redis.error_reply('BADARGS purge takes now, state (scheduled, ready or dead), limit (1 to 1000), and perhaps '
    .. 'at or before ms (at most 15 digits), perhaps passed timers (at most 15 digits), and perhaps, of dead, '
    .. 'at or after ms (at most 15 digits)')
end
limit = math.min(limit, 200)
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES); redis.call('ZCARD', DEAD); redis.call('ZCARD', RECENT)
local timers = tonumber(redis.call('HGET', META, 'schedules') or '') or 0
local ids, left, removed, changed, passed = {}, 0, {}, false, 0
local function is_timer(id) return string.byte(id) == 4 end
if state == 'ready' and before then -- the list is not in the order of the due times
  local kept = {}
  for _, found in ipairs(redis.call('LRANGE', READY, 1, -1)) do
    local due, id = string.match(found, '^(%d+):(.*)$')
    local selected = not due or tonumber(due) <= tonumber(before)
    if selected and #ids < limit and not (due and is_timer(id)) then
      ids[#ids + 1] = id or found
    else
      kept[#kept + 1] = found
      left = selected and not (due and is_timer(id)) and left + 1 or left
    end
  end
  if #ids > 0 then -- the placeholder stays
    redis.call('LTRIM', READY, 0, 0)
    for i = 1, #kept, 1000 do
      redis.call('RPUSH', READY, unpack(kept, i, math.min(i + 999, #kept)))
    end
  end
elseif state == 'ready' then
  --- use: due_of_ready_timer
  local page = redis.call('LRANGE', READY, 1, limit)
  for _, found in ipairs(page) do
    local due, id = string.match(found, '^(%d+):(.*)$')
    if due and is_timer(id) then -- it waits in SCHEDULED again
      redis.call('ZADD', SCHEDULED, due_of_ready_timer(id), id)
    else
      ids[#ids + 1] = id or found
    end
  end
  if #page > 0 then
    local placeholder = redis.call('LINDEX', READY, 0)
    redis.call('LTRIM', READY, #page, -1)
    redis.call('LSET', READY, 0, placeholder)
    changed = true
  end
  left = math.max(0, redis.call('LLEN', READY) - 1)
else
  local zset, least, most, page = state == 'dead' and DEAD or SCHEDULED, ARGV[6] or '-inf', before or '(inf', nil
  timers = zset == DEAD and 0 or timers
  local from = timers > 0 and tonumber(ARGV[5] or 0) or 0
  if ARGV[6] then
    from = redis.call('ZCOUNT', zset, '-inf', '(' .. least)
  end
  local skipped, first, last = from, from, from + (ARGV[5] and 2000 or math.huge)
  local found = redis.call('ZCOUNT', zset, '-inf', most)
  while from < math.min(found, last) and #ids == 0 do -- timers may be before the messages
    page = redis.call('ZRANGE', zset, from, math.min(found, from + (timers > 0 and 1000 or limit)) - 1)
    passed = timers > 0 and from or 0
    for _, id in ipairs(page) do
      if string.byte(id) == 4 then -- a timer
        skipped = skipped + 1
      elseif #ids < math.min(limit, math.max(32, limit - (skipped - first) / 20)) then
        ids[#ids + 1] = id
      end
    end
    from = timers > 0 and from + #page or found
  end
  if #ids == 0 then
    passed = from < found and from or 0
  end
  if timers > 0 and before then
    timers = skipped
  elseif timers > 0 then -- those that are in SCHEDULED
    for _, entry in ipairs(redis.call('LRANGE', READY, 1, -1)) do
      timers = timers - (string.find(entry, '^%d+:\4') and 1 or 0)
    end
  end
  if #ids > 0 then
    redis.call('ZREM', zset, unpack(ids))
  end
  left = math.max(0, redis.call('ZCOUNT', zset, least, most) - timers)
end
if #ids > 0 then
  for _, id in ipairs(ids) do
    remember(string.format('%.2f', now_up + REPEAT_MS + CANCELLED), id)
    remember_end(id)
    removed[id] = true
  end
  redis.call('HDEL', MESSAGES, unpack(ids))
  redis.call('HDEL', ATTRS, unpack(ids))
  if end_lives then
    end_lives(ids, 'purge')
  end
  write_memory(removed)
  redis.call('HINCRBY', META, 'purged', #ids)
end
return {finish(changed or #ids > 0), #ids, left, ARGV[5] and passed or nil}

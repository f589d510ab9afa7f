#!lua flags=allow-oom
-- purge: removes messages of one state (scheduled, ready or dead -> absent), a bounded step at a time. Timers of
--        schedules stay.
-- KEYS   the ten of the queue
-- ARGV   now | state: scheduled, ready or dead | limit: 1 to 1,000
-- Reply  {header, purged, left in that state}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(limit log n)
-- Again  takes the rest

--- use: prelude
--- use: recent_marks
--- use: trim_recent
--- use: repeat_memory
local state, limit = ARGV[2], tonumber(ARGV[3])
if #ARGV ~= 3 or not (state == 'scheduled' or state == 'ready' or state == 'dead')
  or not limit or limit < 1 or limit > 1000 or limit % 1 ~= 0 then
  return redis.error_reply('BADARGS purge takes now, state (scheduled, ready or dead), limit (1 to 1000)')
end
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES); redis.call('ZCARD', DEAD); redis.call('ZCARD', RECENT)
local timers = tonumber(redis.call('HGET', META, 'schedules') or '') or 0
local ids, left, removed, changed = {}, 0, {}, false
local function is_timer(id) return string.byte(id) == 4 end
if state == 'ready' then
  local page = redis.call('LRANGE', READY, 1, limit)
  for _, found in ipairs(page) do
    local due, id = string.match(found, '^(%d+):(.*)$')
    if due and is_timer(id) then -- it waits in SCHEDULED again
      redis.call('ZADD', SCHEDULED, due, id)
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
  local zset, from, page = state == 'dead' and DEAD or SCHEDULED, 0, nil
  timers = zset == DEAD and 0 or timers
  for _, entry in ipairs(timers > 0 and redis.call('LRANGE', READY, 1, -1) or {}) do
    timers = timers - (string.find(entry, '^%d+:\4') and 1 or 0)
  end
  repeat -- timers may be before the messages: 10,000 at most
    page = redis.call('ZRANGE', zset, '-inf', '(inf', 'BYSCORE', 'LIMIT', from, timers > 0 and 1000 or limit)
    for _, id in ipairs(page) do
      if #ids < limit and not is_timer(id) then
        ids[#ids + 1] = id
      end
    end
    from = from + #page
  until #ids > 0 or #page == 0 or timers == 0
  if #ids > 0 then
    redis.call('ZREM', zset, unpack(ids))
  end
  left = math.max(0, redis.call('ZCARD', zset) - 1 - timers)
end
if #ids > 0 then
  for _, id in ipairs(ids) do
    remember(string.format('%.2f', now_up + REPEAT_MS + CANCELLED), id)
    remember_end(id)
    removed[id] = true
  end
  redis.call('HDEL', MESSAGES, unpack(ids))
  redis.call('HDEL', ATTRS, unpack(ids))
  write_memory(removed)
  redis.call('HINCRBY', META, 'purged', #ids)
end
return {finish(changed or #ids > 0), #ids, left}

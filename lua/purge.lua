#!lua flags=allow-oom
-- purge: removes messages of one state (scheduled, ready or dead -> absent), a bounded step at a time.
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
local ids, left, removed = {}, 0, {}
if state == 'ready' then
  for i, found in ipairs(redis.call('LRANGE', READY, 1, limit)) do
    ids[i] = string.match(found, '^%d+:(.*)$') or found
  end
  if #ids > 0 then
    local placeholder = redis.call('LINDEX', READY, 0)
    redis.call('LTRIM', READY, #ids, -1)
    redis.call('LSET', READY, 0, placeholder)
  end
  left = math.max(0, redis.call('LLEN', READY) - 1)
else
  local zset = state == 'dead' and DEAD or SCHEDULED
  ids = redis.call('ZRANGE', zset, '-inf', '(inf', 'BYSCORE', 'LIMIT', 0, limit)
  if #ids > 0 then
    redis.call('ZREMRANGEBYRANK', zset, 0, #ids - 1)
  end
  left = math.max(0, redis.call('ZCARD', zset) - 1)
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
return {finish(#ids > 0), #ids, left}

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

local function create()
  if layout then return end
  local sentinel = '\0' .. string.rep('-', 70)
  for i, read in ipairs({'ZCARD', 'LLEN', 'ZCARD', 'HLEN', 'HLEN', 'HLEN', 'ZCARD', 'ZCARD', 'ZCARD'}) do redis.call(read, KEYS[i]) end
  layout, incarnation = '1', string.sub(redis.sha1hex(int(now_us) .. base .. table.concat(ARGV, ' ', 1, math.min(#ARGV, 4))), 1, 16)
  for _, zset in ipairs({SCHEDULED, LEASES, DEAD, RECENT, NODES}) do redis.call('ZADD', zset, '+inf', sentinel) end
  for _, hash in ipairs({CLAIMS, MESSAGES, ATTRS}) do redis.call('HSET', hash, sentinel, '') end
  if redis.call('LINDEX', READY, 0) ~= sentinel then redis.call('LPUSH', READY, sentinel) end
  redis.call('HSET', META, sentinel, '', 'incarnation', incarnation, 'layout', layout) -- last: until then the queue does not exist
end

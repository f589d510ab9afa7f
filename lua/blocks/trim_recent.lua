local function trim_recent(count) -- up to so many remembered ids whose time is over
  local over = math.min(redis.call('ZCOUNT', RECENT, '-inf', now), count)
  if over > 0 then redis.call('ZREMRANGEBYRANK', RECENT, 0, over - 1) end
end

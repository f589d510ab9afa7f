local function trim_recent(count) -- removes at most `count` names of RECENT whose time is over
  local over = math.min(redis.call('ZCOUNT', RECENT, '-inf', now), count)
  if over > 0 then
    redis.call('ZREMRANGEBYRANK', RECENT, 0, over - 1)
  end
end

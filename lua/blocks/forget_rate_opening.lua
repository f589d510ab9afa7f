-- If the rate closed the queue, opens it: the next claim computes the opening again. A pause or throttle stays.
if opens and int(opens) == redis.call('HGET', META, 'rate_until') then
  local rest = tonumber(redis.call('HGET', META, 'break_until') or '') or 0
  opens = rest > now and rest
  redis.call('HSET', META, 'closed_until', (closed == math.huge and 'full ' or '') .. int(opens or 0))
  closed = closed == math.huge and closed or opens
  old_head, old_length = math.huge, 1 -- finish sees the head as new: it publishes it
  reopened = true
end

--- use: is_full
if not is_full() then -- a lease ended: wake nodes as for a new head
  local rest = tonumber(string.match(redis.call('HGET', META, 'closed_until') or '', '%d+$') or 0)
  closed = rest > now and rest
  redis.call('HSET', META, 'closed_until', int(rest))
  old_head, old_length = math.huge, 1
end

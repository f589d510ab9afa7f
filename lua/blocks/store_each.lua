changed = d > 0
if changed then
  if create_queue then
    create_queue()
  end
  if #payloads > 0 then
    redis.call('HSET', MESSAGES, unpack(payloads))
  end
  redis.call('ZADD', SCHEDULED, unpack(dues))
end
local stored, plain_ids, expires = {}, {}, false
for id, words in pairs(options) do
  if words == '' then
    plain_ids[#plain_ids + 1] = id
  else
    stored[#stored + 1], stored[#stored + 2] = id, '0 0 - ' .. words .. '\n'
    expires = expires or string.find(words, 'expires=', 1, true)
  end
end
if #stored > 0 then
  redis.call('HSET', ATTRS, unpack(stored))
end
if #plain_ids > 0 then -- of replacements
  redis.call('HDEL', ATTRS, unpack(plain_ids))
end
if expires then -- claim looks for messages that have expired
  redis.call('HSET', META, 'expiring', '1', 'selective', '1')
end
if window_end > (tonumber(windows_until or '') or 0) then
  redis.call('HSET', META, 'windows_until', int(window_end))
end

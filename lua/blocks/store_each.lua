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
local stored, plain_ids, expires, last_words, text, s = {}, {}, false, nil, nil, 0
for id, words in pairs(options) do
  if words == '' then
    plain_ids[#plain_ids + 1] = id
  else
    if words ~= last_words then
      last_words, text, expires = words, '0 0 - ' .. words .. '\n', expires or string.find(words, 'expires=', 1, true)
    end
    s, stored[s + 1], stored[s + 2] = s + 2, id, text
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

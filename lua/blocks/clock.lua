local now_us
if clock == '' then
  local time = redis.call('TIME')
  now_us = time[1] * 1000000 + time[2]
elseif string.find(clock or '', '^%d+%.?%d*$') and redis.call('HGET', META, 'test') then
  now_us = math.floor(clock * 1000 + 0.5)
else
  return redis.error_reply('BADNOW ARGV[1] must be empty: only a queue whose meta has a field test takes another clock')
end

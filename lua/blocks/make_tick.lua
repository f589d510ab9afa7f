redis.call('HSET', MESSAGES, id, s.payload)
redis.call('HSET', ATTRS, id, '0 0 - tick' .. (s.options ~= '' and ' ' or '') .. s.options .. '\n')
redis.call('ZADD', SCHEDULED, int(now), id)
if s.overlap ~= 'allow' then
  s.live = s.live .. (s.live ~= '' and ' ' or '') .. string.match(id, '%d+$')
end

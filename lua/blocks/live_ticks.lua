-- The ids of the schedule's ticks that wait or are leased, and of them `s.live` their nominal times. A message that
-- a producer pushed under the id of a former tick has not the option `tick`.
local function live_ticks(s)
  local live, times = {}, {}
  for time in string.gmatch(s.live, '%d+') do
    local id = s.name .. '@' .. time
    local attrs = redis.call('HGET', ATTRS, id) or ''
    if string.find(attrs, '^%d+ %d+ %S+ tick[ \n]') and not redis.call('ZMSCORE', DEAD, id)[1] then
      live[#live + 1], times[#times + 1] = id, time
    end
  end
  s.live = table.concat(times, ' ')
  return live
end
-- Removes a tick that waits; a leased one goes on. Consumers have no right to ZREM of SCHEDULED or to LREM.
local function remove_waiting(id)
  if redis.call('HEXISTS', CLAIMS, id) == 1 or redis.call('HEXISTS', MESSAGES, id) == 0
    or redis.call('ZMSCORE', DEAD, id)[1] then
    return
  end
  if redis.call('ZMSCORE', SCHEDULED, id)[1] then
    redis.call('ZADD', SCHEDULED, '-inf', id)
    redis.call('ZREMRANGEBYRANK', SCHEDULED, '0', '0')
  else
    local entries, rest = redis.call('LRANGE', READY, '1', '-1'), {}
    for _, entry in ipairs(entries) do
      if string.match(entry, '^%d+:(.*)$') ~= id then
        rest[#rest + 1] = entry
      end
    end
    redis.call('LTRIM', READY, '0', '0')
    if #rest > 0 then
      redis.call('RPUSH', READY, unpack(rest))
    end
  end
  redis.call('HDEL', MESSAGES, id)
  redis.call('HDEL', ATTRS, id)
end

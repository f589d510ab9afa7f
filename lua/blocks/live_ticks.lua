-- The ids of the schedule's ticks that wait or are leased, and of them `s.live` their nominal times. A message that
-- a producer pushed under the id of a former tick has not the option `tick`.
local function live_ticks(s)
  local ids, live, times = {}, {}, {}
  for time in string.gmatch(s.live, '%d+') do
    ids[#ids + 1] = s.name .. '@' .. time
  end
  for from = 1, #ids, 1000 do
    local some = {unpack(ids, from, math.min(from + 999, #ids))}
    local attrs, dead = redis.call('HMGET', ATTRS, unpack(some)), redis.call('ZMSCORE', DEAD, unpack(some))
    for i, id in ipairs(some) do
      if attrs[i] and string.find(attrs[i], '^%d+ %d+ %S+ tick[ \n]') and not dead[i] then
        live[#live + 1], times[#times + 1] = id, string.sub(id, #s.name + 2)
      end
    end
  end
  s.live = table.concat(times, ' ')
  return live
end
--- use: leave_ready
-- Removes those of these ticks that wait; a leased one goes on. Consumers have no right to ZREM of SCHEDULED.
local function remove_waiting(ids)
  local gone, scheduled, ready = {}, {}, {}
  for from = 1, #ids, 1000 do
    local some = {unpack(ids, from, math.min(from + 999, #ids))}
    local claims, attrs = redis.call('HMGET', CLAIMS, unpack(some)), redis.call('HMGET', ATTRS, unpack(some))
    local dead, due = redis.call('ZMSCORE', DEAD, unpack(some)), redis.call('ZMSCORE', SCHEDULED, unpack(some))
    for i, id in ipairs(some) do
      if attrs[i] and not claims[i] and not dead[i] and not gone[id] then
        gone[#gone + 1], gone[id] = id, true
        if due[i] then
          scheduled[#scheduled + 1], scheduled[#scheduled + 2] = '-inf', id
        else
          ready[id] = true
        end
      end
    end
  end
  leave_ready(ready)
  for from = 1, #gone, 1000 do
    redis.call('HDEL', MESSAGES, unpack(gone, from, math.min(from + 999, #gone)))
    redis.call('HDEL', ATTRS, unpack(gone, from, math.min(from + 999, #gone)))
  end
  for from = 1, #scheduled, 2000 do
    local to = math.min(from + 1999, #scheduled)
    redis.call('ZADD', SCHEDULED, unpack(scheduled, from, to))
    redis.call('ZREMRANGEBYRANK', SCHEDULED, '0', (to - from - 1) / 2)
  end
end

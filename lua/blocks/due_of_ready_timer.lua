-- Of a timer that leaves READY unfired: its next fire, without the jitter. Its entry may have another one, from before
-- a refill. A claim that comes too early moves it on.
local function due_of_ready_timer(member)
  local record = redis.call('HGET', META, 'schedule:' .. string.sub(member, 2))
  return string.match(record or '', '^active (%d+) ') or int(now)
end

-- Takes a schedule's timer out of READY and SCHEDULED, or moves it to its due time.
local function remove_timer(s)
  if redis.call('ZREM', SCHEDULED, TIMER .. s.name) == 1 then return end
  for _, entry in ipairs(redis.call('LRANGE', READY, 1, -1)) do
    if string.match(entry, '^%d+:(.*)$') == TIMER .. s.name then
      redis.call('LREM', READY, 1, entry)
    end
  end
end
local function place_timer(s) redis.call('ZADD', SCHEDULED, int(due_of_timer(s)), TIMER .. s.name) end

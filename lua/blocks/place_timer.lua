-- Timers that left SCHEDULED for READY: leave_ready removes them, once a call.
local promoted = {}
--- use: leave_ready
local function place_timer(s, old) -- moves a schedule's timer to its due time; old: nil of a new schedule
  if redis.call('ZADD', SCHEDULED, int(due_of_timer(s)), TIMER .. s.name) == 1 and old then
    promoted[TIMER .. s.name] = true
  end
end
local function remove_schedule(s) -- and its timer, but none of its ticks
  local member = TIMER .. s.name
  if redis.call('ZREM', SCHEDULED, member) == 0 then
    promoted[member] = true
  end
  redis.call('HDEL', MESSAGES, member)
  redis.call('HDEL', META, 'schedule:' .. s.name, 'fires:' .. s.name)
  redis.call('HINCRBY', META, 'schedules', '-1')
  count_lists(nil, is_low(s), s.state == 'dry')
end

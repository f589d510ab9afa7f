-- Writes the names of a set's schedules. A set without schedules keeps its revision: an older one stays refused.
local function write_set(set, names, revision)
  local sets, present = read_sets(), false
  for _, name in ipairs(sets) do
    present = present or name == set
  end
  if not present then
    sets[#sets + 1] = set
    table.sort(sets)
    redis.call('HSET', META, 'schedule_sets', table.concat(sets, '\n'))
  end
  table.sort(names)
  redis.call('HSET', META, 'schedules:' .. set, (revision and int(revision) or '') .. '\n' .. table.concat(names, '\n'))
end
-- Removes a schedule and its timer, but none of its ticks.
local function remove_schedule(s)
  local member = TIMER .. s.name
  remove_timer(s)
  redis.call('HDEL', MESSAGES, member)
  redis.call('HDEL', META, 'schedule:' .. s.name, 'fires:' .. s.name)
  redis.call('HINCRBY', META, 'schedules', '-1')
  count_lists(nil, is_low(s), s.state == 'dry')
end

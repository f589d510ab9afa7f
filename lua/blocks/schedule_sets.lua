-- META's schedule_sets has the names of all sets; schedules:SET the set's revision and the names of its schedules. Both
-- are sorted, one name a line.
local function lines_of(text)
  local lines = {}
  for line in string.gmatch(text or '', '[^\n]+') do
    lines[#lines + 1] = line
  end
  return lines
end
local function read_sets() return lines_of(redis.call('HGET', META, 'schedule_sets')) end
local function read_set(set) -- names, revision or nil
  local text = redis.call('HGET', META, 'schedules:' .. set)
  local revision, names = string.match(text or '', '^(%d*)\n(.*)$')
  return lines_of(names), tonumber(revision or '')
end

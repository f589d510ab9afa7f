-- META's schedule_sets has the names of all sets; schedules:SET the set's revision and the names of its schedules. Both
-- are sorted, one name a line. A set may have 10,000 names of 100 bytes: no call reads them one by one, and each copy
-- of the text costs.
local MOST_SETS = 1000
local function read_sets()
  local sets = {}
  for set in string.gmatch(redis.call('HGET', META, 'schedule_sets') or '', '[^\n]+') do
    sets[#sets + 1] = set
  end
  return sets
end
local function read_set(name) -- text: as stored, false if there is no such set; first: where the names begin
  local set = {name = name, text = redis.call('HGET', META, 'schedules:' .. name)}
  set.revision = tonumber(string.match(set.text or '', '^%d*'))
  set.first = (string.find(set.text or '', '\n', 1, true) or 0) + 1
  return set
end
-- Where the line of this name begins, or would begin; and whether it is there.
local function find_name(set, name)
  local text = set.text or ''
  local low, high = set.first, #text + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    local before = string.reverse(string.sub(text, math.max(low, middle - 101), middle - 1))
    local start = middle + 1 - (string.find(before, '\n', 1, true) or #before + 1)
    local stop = string.find(text, '\n', middle, true) or #text + 1
    if string.sub(text, start, stop - 1) < name then
      low = stop + 1
    else
      high = start
    end
  end
  low = math.min(low, #text + 1)
  return low, string.sub(text, low, low + #name) == name .. (low + #name <= #text and '\n' or '')
end
local function find_listed(set, name) -- as find_name; also where a server with another locale has sorted the names
  local at, found = find_name(set, name)
  local start = not found and string.find((set.text or '') .. '\n', '\n' .. name .. '\n', 1, true)
  return start and start + 1 or at, found or start and true
end

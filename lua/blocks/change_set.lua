-- Adds names to a set and removes others; returns whether it has none then. A set without schedules keeps its revision:
-- an older one stays refused.
local function change_set(set, added, removed, revision)
  local text, edits, parts = set.text or '', {}, {}
  for _, name in ipairs(added) do
    local start, found = find_name(set, name)
    edits[#edits + 1] = not found and {start, name, 0} or nil
  end
  for _, name in ipairs(removed) do
    local start, found = find_listed(set, name)
    edits[#edits + 1] = found and {start, name, #name + 1} or nil
  end
  table.sort(edits, function(a, b) return a[1] < b[1] or a[1] == b[1] and a[2] < b[2] end)
  local at, is_empty = set.first, set.first > #text
  revision = revision or set.revision
  if #edits > 0 or revision ~= set.revision or not set.text then
    for _, edit in ipairs(edits) do
      local before = string.sub(text, at, edit[1] - 1)
      before = string.sub(before, -1) == '\n' and string.sub(before, 1, -2) or before
      parts[#parts + 1] = before ~= '' and before or nil
      parts[#parts + 1] = edit[3] == 0 and edit[2] or nil
      at = edit[1] + edit[3]
    end
    parts[#parts + 1] = at <= #text and string.sub(text, at) or nil
    is_empty = #parts == 0
    text = (revision and int(revision) or '') .. '\n' .. table.concat(parts, '\n')
    redis.call('HSET', META, 'schedules:' .. set.name, text)
  end
  return is_empty
end
local function add_set(sets, name)
  sets[#sets + 1] = name
  table.sort(sets)
  redis.call('HSET', META, 'schedule_sets', table.concat(sets, '\n'))
end
local function forget_set(sets, name)
  local others = {}
  for _, other in ipairs(sets) do
    others[#others + 1] = other ~= name and other or nil
  end
  redis.call('HDEL', META, 'schedules:' .. name)
  redis.call('HSET', META, 'schedule_sets', table.concat(others, '\n'))
end

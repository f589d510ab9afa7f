-- The list of a cron: ascending fires with a blank between. All of 2001 to 2286 have 13 digits. In such a list the
-- n-th is found by its place; any other list is read.
local function open_list(text)
  local list = {text = text, from = string.find(text, '\n', 1, true) + 1, n = 0}
  list.width = #string.match(text, '^%d*', list.from) + 1
  local length = #text + 2 - list.from
  if length % list.width == 0 and string.find(text, '^[\n ]%d', #text + 1 - list.width) then
    list.n = length / list.width
  elseif length > 1 then
    list.starts = {}
    for start in string.gmatch(string.sub(text, list.from), '()%d+') do
      list.n = list.n + 1
      list.starts[list.n] = list.from + start - 1
    end
  end
  return list
end
local function start_of(list, n)
  if not list.starts then return list.from + (n - 1) * list.width end
  return list.starts[n] or #list.text + 1
end
local function fire_at(list, n) return tonumber(string.match(list.text, '^%d+', start_of(list, n)) or 'inf') end
local function count_until(list, time) -- how many fires are at or before this time
  local low, high = 0, list.n
  while low < high do
    local middle = math.ceil((low + high) / 2)
    if fire_at(list, middle) <= time then
      low = middle
    else
      high = middle - 1
    end
  end
  return low
end
local function drop_fires(list, n) -- the text without the first n fires
  if n == 0 then return list.text end
  return string.sub(list.text, 1, list.from - 1) .. string.sub(list.text, start_of(list, n + 1))
end

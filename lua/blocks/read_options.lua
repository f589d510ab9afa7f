-- The options of a message: words NAME=VALUE.
local ranges = {max_attempts = 1000000, cost = 1000000, window = 2592000000, max_wait = 3155760000000,
  undo = 9999999999999}
local option_forms = 'one of max_attempts=1..1000000, on_conflict=keep|reschedule|replace|next, '
  .. 'traceparent=00-TRACE-SPAN-FLAGS, expires=MS|+MS, on_expire=dead|drop, cost=1..1000000, window=1..2592000000 ms, '
  .. 'max_wait=1..3155760000000 ms, reuse, revive, undo=MS'
local function read_options(text) -- the values by name; or nil and the reason
  local asked = {on_conflict = 'keep'}
  for word in string.gmatch(text, '[^ ]+') do
    local name, value = string.match(word, '^([%l_]+)=(.+)$')
    if word == 'reuse' or word == 'revive' then
      asked[word] = true
    elseif ranges[name or ''] then
      local number = string.find(value, '^%d+$') and tonumber(value)
      if not number or number < 1 or number > ranges[name] then
        return nil, name .. ' must be 1 to ' .. int(ranges[name])
      end
      asked[name] = int(number)
    elseif name == 'on_conflict' and (value == 'keep' or value == 'reschedule' or value == 'replace'
      or value == 'next') then
      asked.on_conflict = value
    elseif name == 'expires' then
      asked.expires, asked.expires_ms = value, due_ms(value)
      if not asked.expires_ms or string.find(value, '^%+0*$') then
        return nil, 'expires must be + and 1 to 3155760000000 ms after the due time, or unix ms that have not passed'
      end
    elseif name == 'on_expire' and (value == 'drop' or value == 'dead') then
      asked.on_expire = value
    elseif name == 'traceparent' then
      local trace, span = string.match(value, '^00%-([0-9a-f]+)%-([0-9a-f]+)%-[0-9a-f][0-9a-f]$')
      if not trace or #trace ~= 32 or #span ~= 16 or not string.find(trace, '[^0]')
        or not string.find(span, '[^0]') then
        return nil, 'option: ' .. option_forms
      end
      asked.traceparent = value
    else
      return nil, 'option: ' .. option_forms
    end
  end
  if asked.on_expire and not asked.expires then return nil, 'on_expire needs expires' end
  if asked.max_wait and asked.on_conflict == 'keep' then
    return nil, 'max_wait needs on_conflict=reschedule, replace or next'
  end
  if asked.revive and asked.on_conflict ~= 'replace' and asked.on_conflict ~= 'next' then
    return nil, 'revive needs on_conflict=replace or next'
  end
  asked.due_by = asked.max_wait and int(now_up + asked.max_wait)
  local words = {} -- as ATTRS keeps them, in one order
  for _, name in ipairs({'max_attempts', 'traceparent', 'expires', 'on_expire', 'cost', 'window', 'due_by'}) do
    words[#words + 1] = asked[name] and name .. '=' .. asked[name]
  end
  asked.stored = table.concat(words, ' ')
  return asked
end

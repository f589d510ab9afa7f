-- Reads one schedule as a caller gives it. Returns it with its spec in one order of words; or nil and the reason.
local spec_ranges = {every = {10, 3155760000000}, anchor = {0, 9007199254740991}, within = {1, 3155760000000},
  max = {1, 100000}, jitter = {1, 3155760000000}, start = {0, 9007199254740991}, ['end'] = {0, 9007199254740991},
  limit = {1, 1000000000000000}}
local spec_forms = {missed = '^one$ ^skip$ ^all$', overlap = '^allow$ ^skip$ ^replace$', zone = '^[%w_/+-]+$'}
local function read_spec(text)
  local given = {set = set}
  for word in string.gmatch(text, '[^ ]+') do
    local name, value = string.match(word, '^(%l+)=(.+)$')
    local range = spec_ranges[name or '']
    if given[name or ''] then return nil, name .. ' is given twice' end
    if range then
      local number = #value <= 16 and string.find(value, '^%d+$') and tonumber(value)
      if not number or number < range[1] or number > range[2] then
        return nil, name .. ' must be ' .. int(range[1]) .. ' to ' .. int(range[2])
      end
      given[name] = int(number)
    elseif value == 'wait' and name == 'overlap' then
      return nil, 'overlap=wait is not there yet: it needs limits per key. Use overlap=skip'
    elseif spec_forms[name or ''] then
      for form in string.gmatch(spec_forms[name], '[^ ]+') do
        given[name] = given[name] or #value <= 64 and string.find(value, form) and value
      end
      if not given[name] then
        return nil, name .. ' must be ' .. ({missed = 'one, skip or all', overlap = 'allow, skip or replace',
          zone = 'the IANA name of a time zone'})[name]
      end
    else
      return nil, 'spec: words of every=MS, anchor=MS, zone=NAME, missed=one|skip|all, within=MS, max=N, '
        .. 'overlap=allow|skip|replace, jitter=MS, start=MS, end=MS, limit=N'
    end
  end
  return given
end
local function judge_options(text) -- as ATTRS keeps them; or nil and the reason
  local asked, why = read_options(text)
  if not asked then return nil, why end
  for word in string.gmatch(text, '[^ ]+') do
    local name = string.match(word, '^[%l_]+')
    if name ~= 'max_attempts' and name ~= 'on_expire' and not string.find(word, '^expires=%+') then
      return nil, 'ticks take the options max_attempts=N, expires=+MS and on_expire=dead|drop'
    end
  end
  return asked.stored
end
--- use: judge_fires
local function judge_schedule(name, spec, pattern, options, fires, payload)
  if not is_name(name) then return nil, 'name must be 1 to 100 letters, digits and . _ - : /' end
  local given, why = read_spec(spec)
  if not given then return nil, why end
  if given.every and (given.zone or pattern ~= '' or fires ~= '') or not given.every and not given.zone then
    return nil, 'give either every, or zone with a pattern and fires'
  end
  if not given.every and (#pattern < 1 or #pattern > 256 or string.find(pattern, '%c') or given.anchor) then
    return nil, 'pattern must have 1 to 256 bytes, none of them a control byte, and no anchor'
  end
  if given.jitter and given.every and tonumber(given.jitter) >= tonumber(given.every) then
    return nil, 'jitter must be below every'
  end
  if given['end'] and tonumber(given['end']) < tonumber(given.start or 0) then
    return nil, 'end must not be before start'
  end
  if given.max and given.missed ~= 'all' then return nil, 'max needs missed=all' end
  local stored, refusal = judge_options(options)
  if not stored then return nil, refusal end
  local list = given.every and '' or judge_fires(fires)
  if not list then
    return nil, fires_form
  end
  local words = {}
  for _, word in ipairs({'set', 'every', 'anchor', 'zone', 'missed', 'within', 'max', 'overlap', 'jitter', 'start',
    'end', 'limit'}) do
    words[#words + 1] = given[word] and word .. '=' .. given[word]
  end
  local s = parse_schedule(name, 'active 0 0 0 0 0 0 0 0 0 0\n\n' .. table.concat(words, ' ') .. '\n' .. stored .. '\n'
    .. pattern, list)
  s.payload = payload
  return s
end
--- use: pop_fires
-- Sets the first fire after this time, and not before the start.
local function first_fire(s, after)
  local before = math.max(after, (spec_ms(s, 'start') or 0) - 1)
  if s.every then
    local anchor = spec_ms(s, 'anchor') or 0
    s.last = anchor + math.floor((before - anchor) / s.every) * s.every
  else
    pop_fires(s, before)
  end
  move_on(s)
  s.last = after -- and not the start: a change may make it earlier
end

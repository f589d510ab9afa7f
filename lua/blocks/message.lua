-- One message: its state, attributes and expiry, and its place in READY and SCHEDULED.

--- block: state_of
local function state_of(id)
  if (string.byte(id) or 0) < 32 then return 'absent' end -- the placeholder or an entry of a claim, no message
  if redis.call('ZSCORE', SCHEDULED, id) then return 'scheduled' end
  if redis.call('HEXISTS', CLAIMS, id) == 1 then return 'leased' end
  if redis.call('ZSCORE', DEAD, id) then return 'dead' end
  return redis.call('HEXISTS', MESSAGES, id) == 1 and 'ready' or 'absent'
end

--- block: parse_attrs
local function parse_attrs(text) -- failures, crashes, original due or nil, options, last error
  local failures, crashes, due, options, reason = string.match(text or '', '^(%d+) (%d+) ([%d-]+) ([^\n]*)\n(.*)$')
  return tonumber(failures or 0), tonumber(crashes or 0), tonumber(due), options or '', reason or ''
end

--- block: attrs
--- use: parse_attrs
local function attrs_of(id) return parse_attrs(redis.call('HGET', ATTRS, id)) end
local function set_attrs(id, failures, crashes, due, options, reason)
  if failures + crashes == 0 and not due and options == '' and reason == '' then
    return redis.call('HDEL', ATTRS, id)
  end
  local counts = int(failures) .. ' ' .. int(crashes) .. ' ' .. (due and int(due) or '-')
  redis.call('HSET', ATTRS, id, counts .. ' ' .. options .. '\n' .. reason)
end

--- block: read_attrs
-- Of the messages that the claim reads now. If they are its last ones and none has attrs, they take the fast path.
local attrs = not read_attrs and {} or from == 1 and limits and limits.attrs
  or redis.call('HMGET', ATTRS, unpack(ids, from, to))
local some = not read_attrs or to < #ids
for i = 1, some and 0 or #attrs do
  some = some or attrs[i]
end
read_attrs = some and read_attrs

--- block: fresh_options
-- Options as the producer gave them, without what scripts add: the fixed expiry, the count of snoozes, the end of a
-- debounce.
local function free_expiry(options) return (string.gsub(options, ' ?expires_by=%d+', '')) end
local function fresh_options(options)
  options = string.gsub(free_expiry(options), ' ?snoozes=%d+', '')
  return (string.gsub(string.gsub(options, ' ?due_by=%d+', ''), '^ ', ''))
end

--- block: expiry
-- Options say when a message expires: expires=MS, or expires=+MS from its due; expires_by=MS since a retry or a snooze
-- gave it a later due, which does not count.
local function expiry_of(options, due)
  local fixed = string.match(options, 'expires_by=(%d+)')
  if fixed then return tonumber(fixed) end
  local relative, ms = string.match(options, 'expires=(%+?)(%d+)')
  return ms and tonumber(ms) + (relative == '+' and due or 0) or math.huge
end
local function fix_expiry(options, due) -- as options say it, whatever due the message gets
  local moves = string.find(options, 'expires=+', 1, true) and not string.find(options, 'expires_by=', 1, true)
  return moves and options .. ' expires_by=' .. int(expiry_of(options, due)) or options
end

--- block: ready_entry
local entries, listed
local function ready_entry(id) -- of a ready message: '<due ms>:<id>'
  if not entries then
    entries, listed = {}, redis.call('LRANGE', READY, 1, -1)
    for _, found in ipairs(listed) do
      entries[string.match(found, '^%d+:(.*)$') or ''] = found
    end
  end
  return entries[id]
end

--- block: remove_ready
-- Removes these entries (the keys of `gone`) from READY. LREM scans, so it starts from the nearer end.
local function remove_ready(gone)
  local before = 0
  for i, found in ipairs(next(gone) and listed or {}) do
    if gone[found] then
      redis.call('LREM', READY, before <= #listed - i and 1 or -1, found)
    else
      before = before + 1
    end
  end
end

--- block: read_due
-- Reads the first `room` due messages of SCHEDULED; there must be one. Returns their ids, and their dues as runs of
-- equal dues: due, index of the run's last id, due, index, ...
local function read_due(room)
  local ids, dues, r = redis.call('ZRANGE', SCHEDULED, '-inf', now, 'BYSCORE', 'LIMIT', '0', room), {}, 0
  -- ZMSCORE and not ZSCORE: consumers have no right to ZSCORE, so that the scripts of producers are refused to them.
  local last = tonumber(redis.call('ZMSCORE', SCHEDULED, ids[#ids])[1])
  -- Reading a score costs more than all else here. Where dues are dense, one ZCOUNT for each ms costs less. Beyond 9e15
  -- a number plus one may be the same number.
  if old_head >= 0 and last < 9e15 and (last - old_head + 1) * 2.5 <= #ids then
    local n, due, text = 0, math.floor(old_head), int(math.floor(old_head))
    while n < #ids do
      local after = int(due + 1)
      local same = due >= math.floor(last) and #ids or n + redis.call('ZCOUNT', SCHEDULED, text, '(' .. after)
      if same > n then
        dues[r + 1], dues[r + 2], r, n = text, same, r + 2, same
      end
      due, text = due + 1, after
    end
  else
    local found = redis.call('ZRANGE', SCHEDULED, '0', #ids - 1, 'WITHSCORES')
    for i = 1, #ids do
      if found[2 * i] ~= dues[r - 1] then
        dues[r + 1], r = found[2 * i], r + 2
      end
      dues[r] = i
    end
  end
  return ids, dues
end

--- block: read_ready
-- Puts the first `listed` entries of READY before the ids and dues that read_due returned.
local later, later_dues, prefix, r = ids, dues, nil, 0
ids, dues = {}, {}
for i, entry in ipairs(redis.call('LRANGE', READY, '1', listed)) do
  if not prefix or string.find(entry, prefix, 1, true) ~= 1 then -- neighbours often share their due
    prefix, r = string.match(entry, '^%d+:'), r + 2
    dues[r - 1] = prefix and string.sub(prefix, 1, -2) or '0'
  end
  ids[i], dues[r] = prefix and string.sub(entry, #prefix + 1) or '', i
end
for i = 1, #later do
  ids[listed + i] = later[i]
end
for i = 1, #later_dues, 2 do
  dues[r + i], dues[r + i + 1] = later_dues[i], later_dues[i + 1] + listed
end

--- block: unlist
-- The last entry taken becomes the placeholder: the list is never empty, not even within the script.
local placeholder = redis.call('LINDEX', READY, '0')
redis.call('LTRIM', READY, unlisted, '-1')
redis.call('LSET', READY, '0', placeholder)

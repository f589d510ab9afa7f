#!lua flags=allow-oom
-- ack: ends deliveries that were handled (leased -> absent; -> scheduled if a push kept a next message).
-- KEYS   the ten of the queue
-- ARGV   now | per claim: token, how many ids follow, ids; 1 to 1,000 ids in all
-- Reply  {header, {OK | GONE | LOST, ...}}, one for each id; one OK alone if it is the result of all
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(1) a delivery, O(log n) one with a window or a next message, O(log leases) a claim that ends and a delivery
--        that was extended
-- Again  GONE

--- use: begin
--- use: claim_marks
--- use: release_from_claim
local ids, groups, at = {}, {}, 2 -- groups: where in ARGV the token and the number of ids of each claim are
while at <= #ARGV do
  local count = tonumber(ARGV[at + 1])
  if not count or count < 1 or count % 1 ~= 0 or at + 1 + count > #ARGV or #ids + count > 1000 then
    ids = {}
    break
  end
  if at == 2 then
    ids = {unpack(ARGV, 4, 3 + count)} -- mostly all ids of the call
  else
    for i = at + 2, at + 1 + count do
      ids[#ids + 1] = ARGV[i]
    end
  end
  groups[#groups + 1], at = at, at + 2 + count
end
if #ids == 0 then
  return redis.error_reply(
    'BADARGS ack takes now, then token, number of ids, ids for one or more claims, 1 to 1000 ids in all')
end
local claims = redis.call('HMGET', CLAIMS, unpack(ids))
local has_attrs = redis.call('HLEN', ATTRS) > 1
local start, end_acked, has_lives
if has_attrs and (layout or '') >= '3' then
  local keep_ms, nexts = nil, '1'
  if layout > '4' then
    has_lives, keep_ms, nexts = true, unpack(redis.call('HMGET', META, 'life_keep_ms', 'nexts'))
  end
  if nexts or (tonumber(keep_ms or '') or 0) > 0 then -- making functions costs as much as a command
    --- use: attrs
    --- use: life
    --- use: next
    start, end_acked = nexts and start_next, end_lives
  end
end
local replies, acked, n = {'OK'}, ids, #ids
-- Fast path: all ids are under the leases of their claims, and windows remember all or none: no + at the end of what
-- CLAIMS holds, in each or in none a 0 before the due. HDEL finds an id that is given twice.
local sound, windows, i = true, nil, 0
for _, group in ipairs(groups) do
  local token, claim = ARGV[group], nil
  for _ = 1, ARGV[group + 1] do
    i = i + 1
    if claims[i] ~= claim then -- neighbours often share their claim and its due
      claim = claims[i]
      local last = claim and #token == 16 and string.find(claim, token, 1, true) == 1 and string.byte(claim, -1) or 0
      local window = last > 0 and string.byte(claim, 17) == 48 and string.find(claim, '^0%d', 17) ~= nil
      if windows == nil then
        windows = window
      end
      if last < 48 or last > 57 or window ~= windows or (string.byte(ids[i]) or 0) < 32 then
        sound = false
        break
      end
    end
  end
end
local outcomes, extended, ended -- what RECENT gets; ids with a lease of their own; by claim, how many leave its lease
local remember -- makes outcomes; nil if no window remembers an id
if windows or not sound then
  --- use: recent_marks
  --- use: outcomes
  remember = outcomes_of
  outcomes = sound and outcomes_of(ids, 0)
end
-- The first write is on MESSAGES, for that key was not read. What leaves it is acked, in either path.
local deleted = sound and redis.call('HDEL', MESSAGES, unpack(ids)) and redis.call('HDEL', CLAIMS, unpack(ids))
if deleted ~= n then -- one by one; each sees what the earlier ones did
  --- use: has_own_lease
  --- use: has_window
  local taken, windowed = {}, {}
  replies, acked, extended, ended, n, i = {}, {}, {}, {}, 0, 0
  for k, group in ipairs(groups) do
    local token = ARGV[group]
    ended[k] = 0
    for _ = 1, ARGV[group + 1] do
      i = i + 1
      local id, claim = ids[i], claims[i]
      if taken[id] or (string.byte(id) or 0) < 32 then -- the placeholder, a timer, the record of a claim: no message
        replies[i] = 'GONE'
      elseif claim and #token == 16 and string.find(claim, token, 1, true) == 1 then
        n = n + 1
        replies[i], acked[n], taken[id] = 'OK', id, true
        if has_own_lease(claim) then
          extended[#extended + 1] = id
        else
          ended[k] = ended[k] + 1
        end
        if has_window(claim) then
          windowed[#windowed + 1] = id
        end
      else
        replies[i] = redis.call('HEXISTS', MESSAGES, id) == 1 and 'LOST' or 'GONE'
      end
    end
  end
  outcomes = remember and remember(windowed, 0)
  if not deleted and n > 0 then
    redis.call('HDEL', MESSAGES, unpack(acked))
    redis.call('HDEL', CLAIMS, unpack(acked))
  end
end
local changed, quiet, head, length = n > 0, false, old_head, old_length
if changed then
  if has_attrs and has_lives and not end_acked then -- which go with their messages
    --- use: life_mark
    local names = {unpack(acked)}
    for k = 1, n do
      names[n + k] = LIFE_MARK .. acked[k]
    end
    redis.call('HDEL', ATTRS, unpack(names))
  elseif has_attrs then
    redis.call('HDEL', ATTRS, unpack(acked))
  end
  if end_acked then -- before the leases end: they say when the deliveries began
    --- use: has_own_lease
    local attempt_of, held
    --- use: attempt_of
    end_acked(acked, 'ack', function(id)
      if not held then
        held = {}
        for k = 1, #ids do
          held[ids[k]] = claims[k] or nil
        end
      end
      return attempt_of(id, held[id])
    end)
  end
  for k, group in ipairs(groups) do
    local count = ended and ended[k] or tonumber(ARGV[group + 1])
    if count > 0 then
      release_from_claim(ARGV[group], count)
    end
  end
  if extended and #extended > 0 then
    redis.call('ZREM', LEASES, unpack(extended))
    for k, id in ipairs(extended) do
      extended[k] = SINCE_MARK .. id
    end
    redis.call('HDEL', CLAIMS, unpack(extended))
  end
  redis.call('HINCRBY', META, 'acked', n)
  if outcomes and #outcomes > 0 then
    --- use: trim_recent
    redis.call('ZADD', RECENT, unpack(outcomes))
    trim_recent(#outcomes)
  end
  local next_due
  for k = 1, start and n or 0 do
    next_due = start(acked[k]) or next_due
  end
  head = next_due and first_score(SCHEDULED) or head
end
--- use: end
return {header, replies}

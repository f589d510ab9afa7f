#!lua flags=allow-oom
-- ack: ends deliveries that were handled (leased -> absent; -> scheduled if a push kept a next message).
-- KEYS   the ten of the queue
-- ARGV   now | per claim: token, how many ids follow, ids; 1 to 1,000 ids in all
-- Reply  {header, {OK | GONE | LOST, ...}}, one for each id; one OK alone if it is the result of all
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(1) a delivery, O(log n) one with a window or a next message, O(log leases) a claim that ends and a delivery
--        that was extended
-- Again  GONE

--- use: prelude
--- use: claim_marks
--- use: has_own_lease
--- use: release_from_claim
local ids, groups, at = {}, {}, 2
while at <= #ARGV do
  local count = tonumber(ARGV[at + 1])
  if not count or count < 1 or count % 1 ~= 0 or at + 1 + count > #ARGV or #ids + count > 1000 then
    ids = {}
    break
  end
  local from = #ids + 1
  if from == 1 then
    ids = {unpack(ARGV, at + 2, at + 1 + count)} -- mostly all ids of the call
  else
    for i = at + 2, at + 1 + count do
      ids[#ids + 1] = ARGV[i]
    end
  end
  groups[#groups + 1] = {token = ARGV[at], from = from, to = #ids, ended = count}
  at = at + 2 + count
end
if #ids == 0 then
  return redis.error_reply(
    'BADARGS ack takes now, then token, number of ids, ids for one or more claims, 1 to 1000 ids in all')
end
local claims = redis.call('HMGET', CLAIMS, unpack(ids))
local has_attrs = redis.call('HLEN', ATTRS) > 1
redis.call('HLEN', MESSAGES)
local start
if has_attrs and (layout or '') >= '3' then
  --- use: attrs
  --- use: next
  start = start_next
end
local function fits(claim, token) return claim and #token == 16 and string.find(claim, token, 1, true) == 1 end
local replies, acked, extended, n = {'OK'}, ids, {}, #ids
local outcomes -- what RECENT remembers of ids with a window
local function is_plain(claim) -- neither a lease of its own nor a window: no + at its end, no 0 before the due
  local first, last = string.byte(claim, 17), string.byte(claim, -1)
  return first ~= 48 and last >= 48 and last <= 57
end
-- Fast path: all ids are under the leases of their claims. HDEL finds an id that is given twice.
local sound = true
for _, group in ipairs(groups) do
  local claim
  for i = group.from, group.to do
    if claims[i] ~= claim then -- neighbours often share their claim and its due
      claim = claims[i]
      if not fits(claim, group.token) or not is_plain(claim) or (string.byte(ids[i]) or 0) < 32 then
        sound = false
        break
      end
    end
  end
end
local deleted = sound and redis.call('HDEL', CLAIMS, unpack(ids))
if deleted ~= n then -- one by one; each sees what the earlier ones did
  --- use: recent_marks
  --- use: outcomes
  --- use: has_window
  local taken, windowed = {}, {}
  replies, acked, n = {}, {}, 0
  for _, group in ipairs(groups) do
    group.ended = 0
    for i = group.from, group.to do
      local id, claim = ids[i], claims[i]
      if taken[id] or (string.byte(id) or 0) < 32 then -- the placeholder, a timer, the record of a claim: no message
        replies[i] = 'GONE'
      elseif fits(claim, group.token) then
        n = n + 1
        replies[i], acked[n], taken[id] = 'OK', id, true
        if has_own_lease(claim) then
          extended[#extended + 1] = id
        else
          group.ended = group.ended + 1
        end
        if has_window(claim) then
          windowed[#windowed + 1] = id
        end
      else
        replies[i] = redis.call('HEXISTS', MESSAGES, id) == 1 and 'LOST' or 'GONE'
      end
    end
  end
  if n == 0 then return {finish(false), replies} end
  outcomes = outcomes_of(windowed, 0)
  if not deleted then
    redis.call('HDEL', CLAIMS, unpack(acked))
  end
end
for _, group in ipairs(groups) do
  if group.ended > 0 then
    release_from_claim(group.token, group.ended)
  end
end
if #extended > 0 then
  redis.call('ZREM', LEASES, unpack(extended))
end
redis.call('HDEL', MESSAGES, unpack(acked))
if has_attrs then
  redis.call('HDEL', ATTRS, unpack(acked))
end
redis.call('HINCRBY', META, 'acked', n)
if outcomes and #outcomes > 0 then
  --- use: trim_recent
  redis.call('ZADD', RECENT, unpack(outcomes))
  trim_recent(#outcomes)
end
local head = old_head
for i = 1, start and n or 0 do
  if start(acked[i]) then
    head = nil -- it may be the head
  end
end
return {finish(true, false, head, nil, old_length), replies}

#!lua flags=allow-oom
-- claim: ready, and scheduled and due, -> leased, at most a node's fair share: n, or what there is / live nodes if that is
-- less, but at least one.
-- KEYS   the ten of the queue
-- ARGV   now | n: free handlers, 0 to 1,000; 0 only rings the wake-up list | token: 16 bytes, random, new for each call | lease in ms, 1 to 86,400,000
--        | due: 1 to take what is due and not ready, too, after what is; empty or left out not to
-- Reply  {header, left in ready, lease deadline ms, {id, ...}, {payload, ...}, {'<due ms> <attempt> <options>', ...}}; the last has one element
--        if all of them share it; stops at 4 MiB of payload, at least one
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(granted + log n + bytes)
-- Again  grants others; what the lost reply granted comes back when its lease runs out

--- use: prelude
local count, token, lease_ms = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
if #ARGV < 4 or #ARGV > 5 or not count or count < 0 or count > 1000 or count % 1 ~= 0 or #token ~= 16
  or not lease_ms or lease_ms < 1 or lease_ms > 86400000 or lease_ms % 1 ~= 0 or not string.find(ARGV[5] or '', '^1?$') then
  return redis.error_reply('BADARGS claim takes now, n (0 to 1000), token (16 bytes), lease ms (1 to 86400000), due (1, empty or left out)')
end
local ready, nodes, due = math.max(0, old_length - 1), redis.call('ZCOUNT', NODES, now - 3000, '(inf'), 0
if ARGV[5] == '1' and old_head <= now then due = math.max(0, math.min(redis.call('ZCOUNT', SCHEDULED, '-inf', now), 1000 - ready)) end
local share = math.min(count, math.max(1, math.floor((ready + due) / math.max(1, nodes))))
if paused or ready + due < 1 or count == 0 then return {finish(false), ready, -1, {}, {}, {}} end
local read -- what is in attrs; made only where it is needed, for that costs as much as a command
if redis.call('HLEN', ATTRS) > 1 then
--- use: attrs
read = parse_attrs
end
if redis.call('HEXISTS', CLAIMS, '\1' .. token) == 1 then
  return redis.error_reply('BADARGS the token is that of a claim whose lease lasts: it must be new for each call')
end

-- What is ready has waited longest, then comes what is due.
local ids, dues, listed = {}, {}, math.min(share, ready)
if share > listed then
--- use: read_due
ids, dues = read_due(share - listed)
end
if listed > 0 then
  local later, later_dues, prefix, r = ids, dues, nil, 0
  ids, dues = {}, {}
  for i, entry in ipairs(redis.call('LRANGE', READY, '1', listed)) do
    if not prefix or string.find(entry, prefix, 1, true) ~= 1 then -- neighbours often share their due
      prefix, r = string.match(entry, '^%d+:'), r + 2
      dues[r - 1] = prefix and string.sub(prefix, 1, -2) or '0'
    end
    ids[i], dues[r] = prefix and string.sub(entry, #prefix + 1) or '', i
  end
  for i = 1, #later do ids[listed + i] = later[i] end
  for i = 1, #later_dues, 2 do dues[r + i], dues[r + i + 1] = later_dues[i], later_dues[i + 1] + listed end
end

-- Only so many payloads are read at a time as fit into what is left of 4 MiB, by the longest that was ever stored; where that
-- says none, the next one's length is looked at first. So no payload is read in vain.
local granted, payloads, claims, details = ids, {unpack(ids)}, {unpack(ids)}, nil -- of their size at once; granted is never ahead of ids
local n, c, bytes, taken, deadline = 0, 0, 0, 0, now_up + lease_ms -- c: how much is in claims
local largest = #ids > 1 and (tonumber(redis.call('HGET', META, 'largest_payload_bytes') or 4096) or 16777216) or math.huge
local run, last, due, claim, told, shared, alike = 1, 0 -- alike: granted as the one before it
while taken < #ids and (taken == 0 or bytes < 4194304) do
  local from, to = taken + 1, math.min(#ids, taken + math.floor((4194304 - bytes) / largest))
  if to < from then
    if n > 0 and bytes + redis.call('HSTRLEN', MESSAGES, ids[from]) > 4194304 then break end
    to = from
  end
  local extra = read and redis.call('HMGET', ATTRS, unpack(ids, from, to)) or {} -- of few
  local found = redis.call('HMGET', MESSAGES, unpack(ids, from, to))
  for i = 1, #found do
    local payload, at = found[i], taken + 1
    local id = ids[at]
    if at > last then -- the next due
      local text = dues[run]
      last, run, due, claim, told = dues[run + 1], run + 2, tonumber(text), token .. text, text .. ' 1 '
      if due < 0 or due % 1 ~= 0 then told = int(math.max(0, due)) .. ' 1 ' end -- a stranger wrote it: as good as it gets
      alike = not read and due <= now and n > 0 and (details or told == shared)
    end
    if payload and n > 0 and bytes + #payload > 4194304 then bytes = 4194304 break end
    taken = at
    if payload and alike then -- in a hurry: an assignment each, for several at once go by way of others
      n = n + 1
      c = c + 2
      if n < at then granted[n] = id end
      payloads[n] = payload
      claims[c - 1] = id
      claims[c] = claim
      if details then details[n] = told end
      bytes = bytes + #payload
    elseif payload and due > now then -- the clock went back: it is not due yet
      redis.call('ZADD', SCHEDULED, due, id)
    elseif payload then -- an entry without a payload is nobody's message: it is dropped
      local held, detail = claim, told
      if extra[i] then
        local failures, crashes, original, stored = read(extra[i])
        if original then held = token .. int(original) end
        detail = int(original or math.max(0, due)) .. ' ' .. int(failures + crashes + 1) .. ' ' .. stored
      end
      n, c, alike = n + 1, c + 2, not read
      granted[n], payloads[n], claims[c - 1], claims[c] = id, payload, id, held
      if n == 1 then shared = detail
      elseif not details and detail ~= shared then
        details = {}
        for k = 1, n - 1 do details[k] = shared end
      end
      if details then details[n] = detail end
      bytes = bytes + #payload
    end
  end
end

for i = #ids, n + 1, -1 do granted[i], payloads[i] = nil, nil end -- what was not granted

local unlisted = math.min(taken, listed)
if unlisted > 0 then
  -- The last entry taken becomes the sentinel: the list is never empty, not even within the script.
  local sentinel = redis.call('LINDEX', READY, '0')
  redis.call('LTRIM', READY, unlisted, '-1')
  redis.call('LSET', READY, '0', sentinel)
end
if taken > unlisted then redis.call('ZREMRANGEBYRANK', SCHEDULED, '0', taken - unlisted - 1) end
if n > 0 then
  -- One lease for all of them: what they are, and how many of them it still holds. Ids have no control bytes.
  claims[c + 1], claims[c + 2], claims[c + 3], claims[c + 4] = '\1' .. token, table.concat(granted, '\n'), '\2' .. token, n
  redis.call('HSET', CLAIMS, unpack(claims, 1, c + 4))
  redis.call('ZADD', LEASES, deadline, '\1' .. token)
  redis.call('HINCRBY', META, 'claimed', n)
end
local header = finish(true, false, nil, n > 0 and math.min(old_deadline, deadline) or old_deadline, old_length - unlisted)
-- As after a promote: nodes that would stand in for the leader need not.
local head = header[4]
if taken > unlisted and (head == -1 or head - now > 25) then redis.pcall('SPUBLISH', base .. ':notice', head == -1 and '' or int(head)) end
return {header, ready - unlisted, deadline, granted, payloads, details or {shared}}

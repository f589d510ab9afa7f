#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/claim.lua and lua/blocks: change these, not this file.
-- claim: leases messages to a node (ready, or scheduled and due -> leased): n of them, or the node's fair share if that
--        is less. The share is what there is to take / live nodes, and at least one.
-- KEYS   the ten of the queue
-- ARGV   now | n: free handlers, 0 to 1,000; 0 only fills the wake-up list
--        | token: 16 random bytes, new for each call | lease: 1 to 86,400,000 ms
-- Reply  {header, ready messages left, lease deadline ms, {id, ...}, {payload, ...}, {details, ...}, max_attempts}
--        left: 0 while the queue is closed
--        details: '<due ms> <attempt> <options>'; one element alone if all share it. At most 4 MiB of payload, or one
--        options: the stored words, and crashes=N if its lease ran out before; max_attempts: the queue's
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(granted + log n + bytes)
-- Again  grants others; what the lost reply granted comes back when its lease runs out

local SCHEDULED, READY, LEASES, CLAIMS, MESSAGES, ATTRS, DEAD, RECENT, NODES, META = unpack(KEYS)
local base, queue, slash, partition = string.match(META or '', '^(dueq:{([^{}/%c]+)(/?)(%d*)}):meta$')
if #KEYS ~= 10 or not base or #queue > 128 or #slash > #partition
  or SCHEDULED ~= base .. ':scheduled' or READY ~= base .. ':ready' or LEASES ~= base .. ':leases'
  or CLAIMS ~= base .. ':claims' or MESSAGES ~= base .. ':messages' or ATTRS ~= base .. ':attrs'
  or DEAD ~= base .. ':dead' or RECENT ~= base .. ':recent' or NODES ~= base .. ':nodes' then
  return redis.error_reply('BADKEYS give the ten keys of one queue, in their order: dueq:{NAME}:scheduled, ready, '
    .. 'leases, claims, messages, attrs, dead, recent, nodes, meta')
end
local layout, incarnation, seq, paused, parked_until, closed_until =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'parked_until', 'closed_until'))
local function int(number) return string.format('%.0f', number) end
local clock, epoch = ARGV[1], nil -- epoch: of the partition's map; nil in layout 1
if layout and layout ~= '1' then
  if layout ~= '2' then
    return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1 or 2: use a newer dueq')
  end
  epoch = tonumber(redis.call('HGET', META, 'epoch') or 0) or 0
end
local now_us
if clock == '' then
  local time = redis.call('TIME')
  now_us = time[1] * 1000000 + time[2]
elseif string.find(clock or '', '^%d+%.?%d*$') and redis.call('HGET', META, 'test') then
  now_us = math.floor(clock * 1000 + 0.5)
else
  return redis.error_reply('BADNOW ARGV[1] must be empty: only a queue whose meta has a field test takes another clock')
end
local now, now_up = math.floor(now_us / 1000), math.ceil(now_us / 1000)
local closed = closed_until and tonumber(closed_until) -- nothing is promoted or claimed before this time; false if open
if closed and not (closed > now) then -- not <=, which is false of nan, too
  closed = false
end
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time.
local old_head, old_deadline, old_length = first_score(SCHEDULED), first_score(LEASES), redis.call('LLEN', READY)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head`, `deadline` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, deadline, length)
  if not layout then return {now_us, '', 0, -1, -1, 0} end
  if changed then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  head = head or changed and first_score(SCHEDULED) or old_head
  deadline = deadline or changed and first_score(LEASES) or old_deadline
  if closed then -- as if no message were due earlier, and ready ones then
    length = length or changed and redis.call('LLEN', READY) or old_length
    head, length = length > 1 and closed or math.max(head, closed), 1
    old_head = old_length > 1 and closed or math.max(old_head, closed)
  end
  if not paused and not quiet then
    local parked = parked_until and (tonumber(parked_until) or 0) > now -- then each earlier head is published
    if head <= now or (length or changed and redis.call('LLEN', READY) or old_length) > 1 then
      local wake = base .. ':wake'
      local tokens = tonumber(redis.pcall('LLEN', wake)) or 2
      -- While a slot is being migrated, EXISTS of two keys is refused. A wake-up list made here would then collide with
      -- the list that the source node still has to send, so the script makes none.
      if tokens == 0 and not tonumber(redis.pcall('EXISTS', META, wake)) then
        tokens = 2
      end
      for _ = tokens, 1 do
        redis.pcall('RPUSH', wake, '1')
      end
      if parked then -- a parked node does not wait on the wake-up list
        local first_ready = old_length < 2 and (length or redis.call('LLEN', READY)) > 1
        if first_ready or head < old_head then
          redis.pcall('SPUBLISH', base .. ':notice', int(first_ready and math.min(head, now) or head))
        end
      end
    elseif head < old_head and (parked or head - now <= 2000) then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local none = math.huge
  return {now_us, incarnation, tonumber(seq or 0), head < none and head or -1, deadline < none and deadline or -1,
    paused and 1 or 0, epoch}
end
-- A claim has one lease for everything that it granted. First bytes of its names, before the token: LEASE_MARK of the
-- lease in LEASES and of the granted ids in CLAIMS; COUNT_MARK of the number of ids still under the lease, in CLAIMS.
local LEASE_MARK, COUNT_MARK = '\1', '\2'
-- count, share        how many handlers are free; how many messages this node may have
-- ready, due          how many messages are in READY; how many are due in SCHEDULED
-- ids, dues           candidates, first those of READY; their dues in runs, as read_due returns them
-- listed, taken       how many of ids are of READY; how many were looked at
-- granted, payloads   ids and payloads of the grant; n: how many. `granted` is the same table as `ids`: each entry is
--                     written at or behind the read position
-- details, shared     details of each, once they differ; the details that all share until then
-- claims, c           field, value, ... for CLAIMS; how many elements these are
-- bytes, largest      payload bytes granted; the most that one payload may have
-- read_attrs          nil if no message has attrs
-- run, last           index of the next run in dues; index of the present run's last id
-- due, claim, fresh   of the present run: due; what CLAIMS gets; details of a first attempt
-- alike               true if the next message can be granted just as the one before it
local count, token, lease_ms = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
if #ARGV ~= 4 or not count or count < 0 or count > 1000 or count % 1 ~= 0 or #token ~= 16
  or not lease_ms or lease_ms < 1 or lease_ms > 86400000 or lease_ms % 1 ~= 0 then
  return redis.error_reply('BADARGS claim takes now, n (0 to 1000), token (16 bytes), lease ms (1 to 86400000)')
end
local ready, nodes, due = math.max(0, old_length - 1), redis.call('ZCOUNT', NODES, now - 3000, '(inf'), 0
if closed then
  ready = 0
elseif old_head <= now then
  due = math.max(0, math.min(redis.call('ZCOUNT', SCHEDULED, '-inf', now), 1000 - ready))
end
local share = math.min(count, math.max(1, math.floor((ready + due) / math.max(1, nodes))))
if paused or ready + due < 1 or count == 0 then return {finish(false), ready, -1, {}, {}, {}} end
local read_attrs
if redis.call('HLEN', ATTRS) > 1 then -- making functions costs as much as a command
  local function parse_attrs(text) -- failures, crashes, original due or nil, options, last error
    local failures, crashes, due, options, reason = string.match(text or '', '^(%d+) (%d+) ([%d-]+) ([^\n]*)\n(.*)$')
    return tonumber(failures or 0), tonumber(crashes or 0), tonumber(due), options or '', reason or ''
  end
  local function attrs_of(id) return parse_attrs(redis.call('HGET', ATTRS, id)) end
  local function set_attrs(id, failures, crashes, due, options, reason)
    if failures + crashes == 0 and not due and options == '' and reason == '' then
      return redis.call('HDEL', ATTRS, id)
    end
    local counts = int(failures) .. ' ' .. int(crashes) .. ' ' .. (due and int(due) or '-')
    redis.call('HSET', ATTRS, id, counts .. ' ' .. options .. '\n' .. reason)
  end
  read_attrs = parse_attrs
end
if redis.call('HEXISTS', CLAIMS, LEASE_MARK .. token) == 1 then
  return redis.error_reply('BADARGS the token is that of a claim whose lease lasts: it must be new for each call')
end

-- Ready messages first: they were promoted earlier.
local ids, dues, listed = {}, {}, math.min(share, ready)
if share > listed then
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
  for i = 1, #later do
    ids[listed + i] = later[i]
  end
  for i = 1, #later_dues, 2 do
    dues[r + i], dues[r + i + 1] = later_dues[i], later_dues[i + 1] + listed
  end
end

-- No payload is read in vain: each HMGET reads as many as are sure to fit into the rest of 4 MiB. If that is none,
-- HSTRLEN reads the next payload's length first.
local granted, payloads, claims, details = ids, {unpack(ids)}, {unpack(ids)}, nil -- allocated in their final size
local n, c, bytes, taken, deadline = 0, 0, 0, 0, now_up + lease_ms
local max_attempts, longest = unpack(redis.call('HMGET', META, 'max_attempts', 'largest_payload_bytes'))
local largest = #ids > 1 and (tonumber(longest or 4096) or 16777216) or math.huge
local run, last, due, claim, fresh, shared, alike = 1, 0
while taken < #ids and (taken == 0 or bytes < 4194304) do
  local from, to = taken + 1, math.min(#ids, taken + math.floor((4194304 - bytes) / largest))
  if to < from then
    if n > 0 and bytes + redis.call('HSTRLEN', MESSAGES, ids[from]) > 4194304 then break end
    to = from
  end
  local attrs = read_attrs and redis.call('HMGET', ATTRS, unpack(ids, from, to)) or {}
  local found = redis.call('HMGET', MESSAGES, unpack(ids, from, to))
  for i = 1, #found do
    local payload, at = found[i], taken + 1
    local id = ids[at]
    if at > last then -- the next run begins
      local text = dues[run]
      last, run, due, claim, fresh = dues[run + 1], run + 2, tonumber(text), token .. text, text .. ' 1 '
      if due < 0 or due % 1 ~= 0 then -- not written by dueq: clients must be able to parse it
        fresh = int(math.max(0, due)) .. ' 1 '
      end
      alike = not read_attrs and due <= now and n > 0 and (details or fresh == shared)
    end
    if payload and n > 0 and bytes + #payload > 4194304 then
      bytes = 4194304
      break
    end
    taken = at
    if payload and alike then -- the fast path: single assignments, for a multiple one goes through temporaries
      n = n + 1
      c = c + 2
      if n < at then
        granted[n] = id
      end
      payloads[n] = payload
      claims[c - 1] = id
      claims[c] = claim
      if details then
        details[n] = fresh
      end
      bytes = bytes + #payload
    elseif payload and due > now then -- the clock went back: the message is not due yet
      redis.call('ZADD', SCHEDULED, due, id)
    elseif payload then -- without a payload there is no message: the entry is dropped
      local held, detail = claim, fresh
      if attrs[i] then
        local failures, crashes, original, options = read_attrs(attrs[i])
        if original then
          held = token .. int(original)
        end
        detail = int(original or math.max(0, due)) .. ' ' .. int(failures + crashes + 1) .. ' ' .. options
        if crashes > 0 then
          detail = detail .. (options == '' and '' or ' ') .. 'crashes=' .. int(crashes)
        end
      end
      n, c, alike = n + 1, c + 2, not read_attrs
      granted[n], payloads[n], claims[c - 1], claims[c] = id, payload, id, held
      if n == 1 then
        shared = detail
      elseif not details and detail ~= shared then
        details = {}
        for k = 1, n - 1 do
          details[k] = shared
        end
      end
      if details then
        details[n] = detail
      end
      bytes = bytes + #payload
    end
  end
end

for i = #ids, n + 1, -1 do -- candidates that were not granted
  granted[i], payloads[i] = nil, nil
end
local unlisted = math.min(taken, listed)
if unlisted > 0 then
  -- The last entry taken becomes the placeholder: the list is never empty, not even within the script.
  local placeholder = redis.call('LINDEX', READY, '0')
  redis.call('LTRIM', READY, unlisted, '-1')
  redis.call('LSET', READY, '0', placeholder)
end
if taken > unlisted then
  redis.call('ZREMRANGEBYRANK', SCHEDULED, '0', taken - unlisted - 1)
end
if n > 0 then
  claims[c + 1], claims[c + 2] = LEASE_MARK .. token, table.concat(granted, '\n') -- ids have no control bytes
  claims[c + 3], claims[c + 4] = COUNT_MARK .. token, n
  redis.call('HSET', CLAIMS, unpack(claims, 1, c + 4))
  redis.call('ZADD', LEASES, deadline, LEASE_MARK .. token)
  redis.call('HINCRBY', META, 'claimed', n)
end
local first_deadline = n > 0 and math.min(old_deadline, deadline) or old_deadline
local header = finish(true, false, nil, first_deadline, old_length - unlisted)
-- As after a promote: standbys learn that the due messages were taken, and need not promote.
local head = header[4]
if taken > unlisted and (head == -1 or head - now > 25) then
  redis.pcall('SPUBLISH', base .. ':notice', head == -1 and '' or int(head))
end
return {header, ready - unlisted, deadline, granted, payloads, details or {shared}, tonumber(max_attempts or 20)}

#!lua flags=allow-oom
-- claim: leases messages to a node (ready, or scheduled and due -> leased): n of them, or the node's fair share if that
--        is less. The share is what there is to take / live nodes, and at least one.
--        META's rate and max_leased allow fewer; the claim that uses them up closes the queue until it may grant again.
--        Messages that expired are not granted: they die, or are dropped (-> dead or absent), 250 or more a call.
--        A timer of a schedule is not granted, but its tick, which this call makes.
-- KEYS   the ten of the queue
-- ARGV   now | n: free handlers, 0 to 1,000; 0 only fills the wake-up list. A call grants 500 at most
--        if messages of the queue have options or failed before
--        | token: 16 random bytes, new for each claim | lease: 1 to 86,400,000 ms
-- Reply  {header, ready messages left, lease deadline ms, {id, ...}, {payload, ...}, {details, ...}, max_attempts}
--        left: 0 while the queue is closed
--        details: '<due ms> <attempt> <options>'; one element alone if all share it. At most 4 MiB of payload, or one
--        options: the stored words, and crashes=N if its lease ran out before; max_attempts: the queue's
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, HELD (a lease has this token), WRONGTYPE: nothing was written
-- Cost   O(granted + log n + bytes)
-- Again  HELD, while a lease has the token: `held` returns the grant. Else it grants others

--- use: partition
--- use: clock
--- use: open
-- What the block `before` reads, and the second score of SCHEDULED: it is the next head if the claim takes one message.
local first, old_length = redis.call('ZRANGE', SCHEDULED, '0', '1', 'WITHSCORES'), redis.call('LLEN', READY)
redis.call('ZCARD', LEASES); redis.call('ZCARD', NODES) -- a producer has no right to NODES: it is refused here
local old_head, second = tonumber(first[2] or 'inf'), tonumber(first[4] or 'inf')
--- use: claim_marks
-- count, share        how many handlers are free; how many messages this node may have
-- limits              of the rate, max_leased and expiries; nil if the queue has none
-- room                how many candidates are read; more than share if some of these have expired
-- ready, due          how many messages are in READY; how many are due in SCHEDULED
-- ids, dues           candidates, first those of READY; their dues in runs, as read_due returns them
-- listed, taken       how many candidates are of READY; how many of ids were looked at
-- granted, payloads   ids and payloads of the grant; n: how many. `granted` is the same table as `ids`: each entry is
--                     written at or behind the read position
-- details, shared     details of each, once they differ; the details that all share until then
-- claims, c           field, value, ... for CLAIMS; how many elements these are
-- bytes, largest      payload bytes granted; the most that one payload may have
-- read_attrs          nil if no message has attrs
-- run, last           index of the next run in dues; index of the present run's last id
-- due, claim, fresh   of the present run: due; what CLAIMS gets; details of a first attempt
-- seen                the attrs of the message before, of the same run; seen_held, seen_detail: what they made
-- fire, place_timers  nil if no candidate is a timer; the first turns a timer into its tick
-- looked              how many fires and earlier ticks the claim has looked at
-- alike               true if the next message can be granted just as the one before it
local count, token, lease_ms = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
if #ARGV ~= 4 or not count or count < 0 or count > 1000 or count % 1 ~= 0 or #token ~= 16
  or not lease_ms or lease_ms < 1 or lease_ms > 86400000 or lease_ms % 1 ~= 0 then
  return redis.error_reply('BADARGS claim takes now, n (0 to 1000), token (16 bytes), lease ms (1 to 86400000)')
end
-- Before the claim looks for messages: the repetition of a claim that took them all is recognised, too.
if count > 0 and redis.call('HEXISTS', CLAIMS, LEASE_MARK .. token) == 1 then
  return redis.error_reply('HELD a lease has this token: an earlier claim has granted. Read the grant with held, or '
    .. 'claim with a new token')
end
local ready, due, nodes = closed and 0 or math.max(0, old_length - 1), 0, 1
if paused or count == 0 or ready < 1 and (closed or old_head > now) then
  --- use: finish
  return {finish(false), ready, -1, {}, {}, {}}
end
local max_attempts, longest, selective =
  unpack(redis.call('HMGET', META, 'max_attempts', 'largest_payload_bytes', 'selective'))
if not closed and old_head <= now then
  local one = second > now or count == 1 and not selective -- at most one is taken: no need to count them
  due = math.max(0, math.min(one and 1 or redis.call('ZCOUNT', SCHEDULED, '-inf', int(now)), 1000 - ready))
end
if count > 1 and ready + due > 1 then
  nodes = math.max(1, redis.call('ZCOUNT', NODES, int(now - 3000), '(inf'))
end
local share = math.min(count, math.max(1, math.floor((ready + due) / nodes)))
local read_attrs
if redis.call('HLEN', ATTRS) > 1 then -- making functions costs as much as a command
  --- use: parse_attrs
  read_attrs, share = parse_attrs, math.min(share, 500)
end
local limits
if selective then
  --- use: limits
  limits.read()
  share = limits.share
  if share < 1 then
    local head = old_head
    limits.charge(0)
    --- use: finish
    return {finish(true, false, head), 0, -1, {}, {}, {}}
  end
end
if (layout or '') > '3' then
  --- use: may_make_ticks
end
local room, ids, dues, listed = share
repeat -- once more with more room, if some of these have expired
  -- Ready messages first: they were promoted earlier.
  ids, dues, listed = {}, {}, math.min(room, ready)
  if room == listed + 1 then
    ids, dues = {first[1]}, {first[2], 1}
  elseif room > listed then
    --- use: read_due
    ids, dues = read_due(room - listed)
  end
  if listed > 0 then
    --- use: read_ready
  end
  local before = room
  if limits and read_attrs then
    ids, dues, room = limits.choose(ids, dues, room, read_attrs)
  end
until room == before
local fire, place_timers, looked = nil, nil, 0
if (layout or '') > '3' then
  --- use: fire
end

-- No payload is read in vain: each HMGET reads as many as are sure to fit into the rest of 4 MiB. If that is none,
-- HSTRLEN reads the next payload's length first.
local granted, payloads, claims, details = ids, {unpack(ids)}, {unpack(ids)}, nil -- allocated in their final size
local n, c, bytes, taken, deadline = 0, 0, 0, 0, now_up + lease_ms
local largest = #ids > 1 and (tonumber(longest or 4096) or 16777216) or math.huge
local run, last, due, claim, fresh, shared, alike, seen, seen_held, seen_detail = 1, 0
while taken < #ids and (taken == 0 or bytes < 4194304) do
  local from, to = taken + 1, math.min(#ids, taken + math.floor((4194304 - bytes) / largest))
  if to < from then
    if n > 0 and bytes + redis.call('HSTRLEN', MESSAGES, ids[from]) > 4194304 then break end
    to = from
  end
  --- use: read_attrs
  local found = redis.call('HMGET', MESSAGES, unpack(ids, from, to))
  for i = 1, #found do
    local payload, at = found[i], taken + 1
    local id = ids[at]
    if at > last then -- the next run begins
      local text = dues[run]
      last, run, due, claim, fresh = dues[run + 1], run + 2, tonumber(text), token .. text, text .. ' 1 '
      if due <= 0 or due % 1 ~= 0 then -- -0, too: not written by dueq: clients must be able to parse it
        fresh = int(math.max(0, due) + 0.5) .. ' 1 '
      end
      seen = nil
      alike = not read_attrs and not fire and due <= now and n > 0 and (details or fresh == shared)
    end
    if payload and n > 0 and bytes + #payload > 4194304 or looked >= 1000 and string.byte(id) == 4 then
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
      second = nil
    elseif payload then -- without a payload there is no message: the entry is dropped
      local held, detail = claim, fresh
      if fire and string.byte(id) == 4 then -- a timer: the tick that it makes is granted
        id, held, detail = fire(id, payload)
        if id and limits and limits.costs then
          limits.costs[id] = 1
        end
      elseif attrs[i] and attrs[i] == seen then -- neighbours often share their options
        held, detail = seen_held, seen_detail
      elseif attrs[i] then
        local failures, crashes, original, options = read_attrs(attrs[i])
        if original then
          held = token .. int(original)
        end
        if string.find(options, 'window=', 1, true) then
          held = token .. '0' .. string.sub(held, 17) -- has_window finds it
        end
        local first_due = original and int(original) or string.match(fresh, '^%d+')
        detail = first_due .. ' ' .. int(failures + crashes + 1) .. ' ' .. options
        if crashes > 0 then
          detail = detail .. (options == '' and '' or ' ') .. 'crashes=' .. int(crashes)
        end
        seen, seen_held, seen_detail = attrs[i], held, detail
      end
      if id then
        n, c, alike = n + 1, c + 2, not read_attrs and not fire
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
end

for i = #ids, n + 1, -1 do -- candidates that were not granted
  granted[i], payloads[i] = nil, nil
end
if limits then
  taken = limits.taken(taken)
end
local unlisted = math.min(taken, listed)
if unlisted > 0 then
  --- use: unlist
end
if taken > unlisted then
  redis.call('ZREMRANGEBYRANK', SCHEDULED, '0', taken - unlisted - 1)
end
if n > 0 then
  --- use: write_lease
  redis.call('HINCRBY', META, 'claimed', int(n))
end
if limits then
  limits.expire(taken)
end
local left = place_timers and place_timers() or ready - unlisted
local changed, quiet, head, length = true, false, old_head, left + 1
if place_timers or not second or taken > unlisted + 1 then
  head = first_score(SCHEDULED)
elseif taken > unlisted then
  head = second
end
if limits then
  limits.charge(n, granted)
end
--- use: end
-- As after a promote: standbys learn that the due messages were taken, and need not promote.
if taken > unlisted and head - now > 25 then
  redis.pcall('SPUBLISH', base .. ':notice', head < NEVER and int(head) or '')
end
return {header, closed and 0 or left, deadline, granted, payloads, details or {shared}, tonumber(max_attempts or 20)}

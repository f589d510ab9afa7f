#!lua flags=allow-oom
-- reap: takes back deliveries whose lease ran out (leased -> scheduled, crashes + 1; or dead beyond max_crashes, 5).
--       After its first crash a message is due at once; after crash c >= 2 in 2^(c-1) s times 0.5 to 1.5, so that a
--       message that kills its node does not take the same neighbours with it each time. Nothing is reaped before
--       META's reap_after, nor while no node has beaten for 3 s: after an outage live nodes extend first.
--       A message that an operator wants dead dies (bury).
--       With ids: for an operator, and the leases of these ids, as if they had run out.
-- KEYS   the ten of the queue
-- ARGV   now | limit: 1 to 1,000
--        now | ids | per message, 1 to 1,000: id, the 16 digits that get and peek name its lease by
-- Reply  {header, reaped, of these dead}; ids: {header, {SCHEDULED <ms> | DEAD | GONE | LOST | MOVING | AWAY,
--        ...}}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log n) a delivery; it looks at about 2,000 granted ids at most
-- Again  takes the rest; ids: LOST

--- use: partition
if ARGV[2] == 'ids' then
  --- use: fence
end
--- use: clock
--- use: open
--- use: before
--- use: finish
--- use: attrs
--- use: claim_marks
--- use: has_own_lease
--- use: release_from_claim
--- use: bury_marked
--- use: life_of_deliveries
--- use: next
local limit, is_by_ids = tonumber(ARGV[2]), ARGV[2] == 'ids'
if not (is_by_ids and #ARGV % 2 == 0 and #ARGV >= 4 and #ARGV <= 2002)
  and (#ARGV ~= 2 or not limit or limit < 1 or limit > 1000 or limit % 1 ~= 0) then
  return redis.error_reply(
    'BADARGS reap takes now, limit (1 to 1000); or now, ids, then id, lease for 1 to 1000 messages')
end
if is_by_ids then
  redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
  redis.call('HLEN', MESSAGES)
end
local last_beat, reap_after, max_crashes = unpack(redis.call('HMGET', META, 'last_beat', 'reap_after', 'max_crashes'))
local silence = now - tonumber(last_beat or 0)
if not is_by_ids and (not layout or silence > 3000 or silence < 0 or now < tonumber(reap_after or 0)) then
  return {finish(false), 0, 0}
end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('ZCARD', DEAD)
local reaped, died, looked = 0, 0, 0
local function take(id, claim) -- returns when it is due, nil if it is dead
  local due, failures, crashes, _, options, reason = tonumber(string.match(claim, '^%d+', 17)) or now, attrs_of(id)
  crashes, reaped = crashes + 1, reaped + 1
  if note then
    note(id, 'crash', nil, attempt_of(id, claim))
  end
  redis.call('HDEL', CLAIMS, id)
  local due_next = start_next(id)
  if due_next then return due_next end
  if bury_marked(id, claim, failures, crashes, options, reason) then return nil end
  if crashes > tonumber(max_crashes or 5) then
    local why = 'the lease ran out ' .. int(crashes) .. ' times' .. (reason ~= '' and '; before that: ' .. reason or '')
    set_attrs(id, failures, crashes, nil, options, why)
    redis.call('ZADD', DEAD, now, id)
    died = died + 1
    return nil
  end
  local again
  if crashes == 1 then
    set_attrs(id, failures, crashes, nil, options, reason)
    again = math.min(due, now)
  else
    local chance = tonumber(string.sub(redis.sha1hex(claim .. id), 1, 6), 16) / 16777216
    local wait_ms = 1000 * 2 ^ math.min(crashes - 1, 20) * (0.5 + chance)
    set_attrs(id, failures, crashes, due, options, reason)
    again = math.ceil(now_up + wait_ms)
  end
  redis.call('ZADD', SCHEDULED, again, id)
  return int(again)
end
local function take_lease(id, claim) -- with what is left of its lease
  redis.call('ZREM', LEASES, id)
  local due = take(id, claim)
  if has_own_lease(claim) then
    redis.call('HDEL', CLAIMS, SINCE_MARK .. id)
  elseif #claim > 16 then
    release_from_claim(string.sub(claim, 1, 16), 1)
  end
  return due
end
local function end_claim(token) -- takes the ids under the claim's lease, up to the limit; the lease ends with the last
  local left = 0
  for id in string.gmatch(redis.call('HGET', CLAIMS, LEASE_MARK .. token) or '', '[^\n]+') do
    local claim = redis.call('HGET', CLAIMS, id) -- another token's if the id was settled and claimed again
    looked = looked + 1
    if claim and string.find(claim, token, 1, true) == 1 and not has_own_lease(claim) then
      if reaped < limit then
        take(id, claim)
      else
        left = left + 1
      end
    end
  end
  if left > 0 then
    redis.call('HSET', CLAIMS, COUNT_MARK .. token, left)
  else
    redis.call('HDEL', CLAIMS, LEASE_MARK .. token, COUNT_MARK .. token)
    redis.call('ZREM', LEASES, LEASE_MARK .. token)
  end
end
local late, replies = {}, {}
if is_by_ids then
  --- use: away
  --- use: state_of
  --- use: lease_name
  for i = 3, #ARGV, 2 do
    local id = ARGV[i]
    local state = state_of(id)
    local claim = state == 'leased' and redis.call('HGET', CLAIMS, id)
    if claim and string.sub(lease_name(claim), 1, 16) == ARGV[i + 1] then
      local due = take_lease(id, claim)
      replies[(i - 1) / 2] = due and 'SCHEDULED ' .. due or 'DEAD'
    else
      local gone = state == 'absent' and away(id)
      replies[(i - 1) / 2] = gone == 'ABSENT' and 'GONE' or gone or 'LOST'
    end
  end
else
  late = redis.call('ZRANGE', LEASES, '-inf', now, 'BYSCORE', 'LIMIT', 0, limit)
end
for _, lease in ipairs(late) do
  if reaped == limit or looked >= 1000 then break end
  if string.sub(lease, 1, 1) == LEASE_MARK then
    end_claim(string.sub(lease, 2))
  else
    take_lease(lease, redis.call('HGET', CLAIMS, lease) or '')
  end
end
if reaped > 0 then
  redis.call('HINCRBY', META, 'crashed', reaped)
end
died = died + buried
if died > 0 then
  redis.call('HINCRBY', META, 'died', died)
end
if is_by_ids then return {finish(reaped > 0), replies} end
return {finish(#late > 0), reaped, died}

#!lua flags=allow-oom
-- reap: leased beyond its deadline -> scheduled, crashes + 1; or dead beyond max_crashes (5).
-- The first crash is due again at once; crash c >= 2 after 2^(c-1) s times 0.5 to 1.5, so that a message that kills its
-- node does not take the same neighbours with it each time. Nothing is reaped while the queue is on hold, or while no
-- node has beaten for 3 s: after an outage live nodes extend first.
-- KEYS   the ten of the queue
-- ARGV   now | limit: 1 to 1,000
-- Reply  {header, reaped, of these dead}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log n) a delivery; it looks at no more than about 10,000 of those that were granted with them
-- Again  takes the rest

--- use: prelude
--- use: attrs
--- use: has_own_lease
--- use: release_from_claim
local limit = tonumber(ARGV[2])
if #ARGV ~= 2 or not limit or limit < 1 or limit > 1000 or limit % 1 ~= 0 then
  return redis.error_reply('BADARGS reap takes now, limit (1 to 1000)')
end
local seen, hold, max_crashes = unpack(redis.call('HMGET', META, 'last_beat', 'reap_after', 'max_crashes'))
local silence = now - tonumber(seen or 0)
if not layout or silence > 3000 or silence < 0 or now < tonumber(hold or 0) then return {finish(false), 0, 0} end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('ZCARD', DEAD)
local reaped, died, looked = 0, 0, 0
local function take(id, claim)
  local due, failures, crashes, _, options, reason = tonumber(string.match(claim, '^%d+', 17)) or now, attrs_of(id)
  crashes, reaped = crashes + 1, reaped + 1
  redis.call('HDEL', CLAIMS, id)
  if crashes > tonumber(max_crashes or 5) then
    set_attrs(id, failures, crashes, nil, options, 'the lease ran out ' .. int(crashes) .. ' times' .. (reason ~= '' and '; before that: ' .. reason or ''))
    redis.call('ZADD', DEAD, now, id)
    died = died + 1
  elseif crashes == 1 then
    set_attrs(id, failures, crashes, nil, options, reason)
    redis.call('ZADD', SCHEDULED, math.min(due, now), id)
  else
    local chance = tonumber(string.sub(redis.sha1hex(claim .. id), 1, 6), 16) / 16777216
    set_attrs(id, failures, crashes, due, options, reason)
    redis.call('ZADD', SCHEDULED, math.ceil(now_up + 1000 * 2 ^ math.min(crashes - 1, 20) * (0.5 + chance)), id)
  end
end
local function end_claim(token) -- takes what is still under the claim's lease, as far as the limit allows; then there is none
  local left = 0
  for id in string.gmatch(redis.call('HGET', CLAIMS, '\1' .. token) or '', '[^\n]+') do
    local claim = redis.call('HGET', CLAIMS, id) -- another token's, if it was settled and claimed again
    looked = looked + 1
    if claim and string.find(claim, token, 1, true) == 1 and not has_own_lease(claim) then
      if reaped < limit then take(id, claim) else left = left + 1 end
    end
  end
  if left > 0 then redis.call('HSET', CLAIMS, '\2' .. token, left)
  else
    redis.call('HDEL', CLAIMS, '\1' .. token, '\2' .. token)
    redis.call('ZREM', LEASES, '\1' .. token)
  end
end
local late = redis.call('ZRANGE', LEASES, '-inf', now, 'BYSCORE', 'LIMIT', 0, limit)
for _, lease in ipairs(late) do
  if reaped == limit or looked >= 10000 then break end
  if string.byte(lease) == 1 then end_claim(string.sub(lease, 2))
  else
    local claim = redis.call('HGET', CLAIMS, lease) or ''
    redis.call('ZREM', LEASES, lease)
    take(lease, claim)
    if #claim > 16 and not has_own_lease(claim) then release_from_claim(string.sub(claim, 1, 16), 1) end
  end
end
if reaped > 0 then redis.call('HINCRBY', META, 'crashed', reaped) end
if died > 0 then redis.call('HINCRBY', META, 'died', died) end
return {finish(#late > 0), reaped, died}

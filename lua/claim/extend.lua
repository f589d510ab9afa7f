#!lua flags=allow-oom
-- extend: sets a delivery's deadline to now + lease, never earlier than it was, and gives it a lease of its own.
--         CLAIMS keeps when the delivery began.
-- KEYS   the ten of the queue
-- ARGV   now | per delivery, 1 to 1,000: id, token, lease in ms, 1 to 86,400,000
-- Reply  {header, {OK <deadline ms> | GONE | LOST | INVALID <why>, ...}}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log leases) a delivery
-- Again  harmless

--- use: prelude
--- use: claim_marks
--- use: has_own_lease
--- use: release_from_claim
--- use: since
--- use: refusal_of
--- use: lease_member
local count = (#ARGV - 1) / 3
if count < 1 or count > 1000 or count % 1 ~= 0 then
  return redis.error_reply('BADARGS extend takes now, then id, token, lease ms for 1 to 1000 deliveries')
end
redis.call('HLEN', CLAIMS); redis.call('HLEN', MESSAGES)
local replies, changed = {}, 0
local starts = {} -- by token: when its deliveries began, as text
for i = 1, count do
  local id, lease_ms = ARGV[3 * i - 1], tonumber(ARGV[3 * i + 1])
  local refusal, claim = refusal_of(id, ARGV[3 * i])
  if not lease_ms or lease_ms < 1 or lease_ms > 86400000 or lease_ms % 1 ~= 0 then
    replies[i] = 'INVALID lease must be 1 to 86400000 ms'
  elseif refusal then
    replies[i] = refusal
  else
    local old = tonumber(redis.call('ZSCORE', LEASES, lease_member(id, claim)) or 0)
    local deadline = math.max(now_up + lease_ms, old)
    if not has_own_lease(claim) then
      local token = string.sub(claim, 1, 16)
      starts[token] = starts[token] or int(begun(redis.call('HGET', CLAIMS, LEASE_MARK .. token), old))
      redis.call('HSET', CLAIMS, id, claim .. '+', SINCE_MARK .. id, starts[token])
      release_from_claim(token, 1)
    end
    redis.call('ZADD', LEASES, deadline, id)
    replies[i], changed = 'OK ' .. int(deadline), changed + 1
  end
end
return {finish(changed > 0), replies}

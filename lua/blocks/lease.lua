-- The leases of claims, and the ids under them.

--- block: claim_marks
-- A claim has one lease for everything that it granted. First bytes of its names, before the token: LEASE_MARK of the
-- lease in LEASES and of the granted ids in CLAIMS; COUNT_MARK of the number of ids still under the lease, in CLAIMS.
local LEASE_MARK, COUNT_MARK = '\1', '\2'

--- block: write_lease
claims[c + 1], claims[c + 2] = LEASE_MARK .. token, table.concat(granted, '\n') -- ids have no control bytes
claims[c + 3], claims[c + 4] = COUNT_MARK .. token, int(n)
redis.call('HSET', CLAIMS, unpack(claims, 1, c + 4))
redis.call('ZADD', LEASES, int(deadline), LEASE_MARK .. token)

--- block: has_own_lease
-- Extend gives an id a lease of its own. A + at the end of the id's claim says so.
local function has_own_lease(claim) return string.byte(claim, -1) == 43 end

--- block: lease_member
local function lease_member(id, claim) -- the member of LEASES that holds this id
  return has_own_lease(claim) and id or LEASE_MARK .. string.sub(claim, 1, 16)
end

--- block: lease_name
-- Names the lease of an id's value in CLAIMS: the first 16 digits of the SHA-1 of its token, which tells no token; and
-- behind a blank the end of the node's id, if the token gives it.
local function lease_name(claim)
  local node = string.match(claim, '^@(%w%w%w%w%w%w%w)')
  return string.sub(redis.sha1hex(string.sub(claim, 1, 16)), 1, 16) .. (node and ' ' .. node or '')
end

--- block: refusal_of
-- Returns GONE or LOST; or nil, the id's value in CLAIMS and its original due time, if this token holds it.
local function refusal_of(id, token)
  if (string.byte(id) or 0) < 32 then return 'GONE' end -- the placeholder, a timer, the record of a claim: no message
  local claim = redis.call('HGET', CLAIMS, id)
  if claim and #token == 16 and string.sub(claim, 1, 16) == token then
    return nil, claim, tonumber(string.match(claim, '^%d+', 17)) or 0
  end
  return redis.call('HEXISTS', MESSAGES, id) == 1 and 'LOST' or 'GONE'
end

--- block: end_lease
local ended = {} -- how many ids left the lease of each claim
local function end_lease(id, claim) -- end_claims must follow
  redis.call('HDEL', CLAIMS, id)
  if has_own_lease(claim) then
    redis.call('ZREM', LEASES, id)
  else
    local token = string.sub(claim, 1, 16)
    ended[token] = (ended[token] or 0) + 1
  end
end
local function end_claims()
  for token, count in pairs(ended) do
    release_from_claim(token, count)
  end
end

--- block: release_from_claim
-- Takes `count` ids from under the claim's lease. The lease ends with the last one.
local function release_from_claim(token, count)
  local held = tonumber(redis.call('HGET', CLAIMS, COUNT_MARK .. token))
  if held and held > count then
    redis.call('HSET', CLAIMS, COUNT_MARK .. token, held - count)
  elseif held then
    redis.call('HDEL', CLAIMS, LEASE_MARK .. token, COUNT_MARK .. token)
    redis.call('ZREM', LEASES, LEASE_MARK .. token)
  end
end

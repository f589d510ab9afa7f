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

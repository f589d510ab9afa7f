local function end_lease(id, claim)
  redis.call('HDEL', CLAIMS, id)
  if has_own_lease(claim) then
    redis.call('ZREM', LEASES, id)
  else
    release_from_claim(string.sub(claim, 1, 16), 1)
  end
end

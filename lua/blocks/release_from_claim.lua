local function release_from_claim(token, count) -- so many are no longer under the claim's lease: it ends with the last
  local held = tonumber(redis.call('HGET', CLAIMS, '\2' .. token))
  if held and held > count then redis.call('HSET', CLAIMS, '\2' .. token, held - count)
  elseif held then
    redis.call('HDEL', CLAIMS, '\1' .. token, '\2' .. token)
    redis.call('ZREM', LEASES, '\1' .. token)
  end
end

if longest > largest then -- of all payloads that were ever stored, as a power of two: claim plans its reads by it
  local bytes = 4096
  while bytes < longest do
    bytes = 2 * bytes
  end
  redis.call('HINCRBY', META, 'largest_payload_bytes', int(bytes - (largest > 4096 and largest or 0)))
end

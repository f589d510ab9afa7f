memory = memory or {}
if remember_call and until_ms then
  memory[#memory + 1], memory[#memory + 2] = until_text, call
end
if #memory > 0 then
  --- use: trim_recent
  redis.call('ZADD', RECENT, unpack(memory))
  trim_recent(#memory)
end
if longest > largest then -- of all payloads that were ever stored, as a power of two: claim plans its reads by it
  local bytes = 4096
  while bytes < longest do
    bytes = 2 * bytes
  end
  redis.call('HINCRBY', META, 'largest_payload_bytes', int(bytes - (largest > 4096 and largest or 0)))
end
if created > 0 then
  redis.call('HINCRBY', META, 'pushed', created)
end

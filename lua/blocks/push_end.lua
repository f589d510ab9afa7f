memory = memory or {}
if remember_call and until_ms then
  memory[#memory + 1], memory[#memory + 2] = until_text, call
end
if #memory > 0 then
  --- use: trim_recent
  redis.call('ZADD', RECENT, unpack(memory))
  trim_recent(#memory)
end
--- use: grow_largest
if created > 0 then
  redis.call('HINCRBY', META, 'pushed', created)
end

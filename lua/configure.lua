#!lua flags=allow-oom
-- configure: sets limits of the queue. A limit that is not named stays as it is.
-- KEYS   the ten of the queue; configure makes them if they do not exist
-- ARGV   now | name, value pairs (default in brackets):
--        max_attempts 1 to 1,000,000 (20); max_crashes 0 to 1,000,000 (5);
--        max_messages 1 to 10^15, empty for none (none); max_payload_bytes 1 to 16,777,216 (1,048,576);
--        dead_keep_ms 1 to 3,155,760,000,000 (30 days);
--        dead_keep 1 to 10^15 (100,000)
-- Reply  {header, OK}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(1)
-- Again  the same

--- use: prelude
--- use: create
local most = {max_attempts = 1000000, max_crashes = 1000000, max_messages = 1e15, max_payload_bytes = 16777216,
  dead_keep_ms = 3155760000000, dead_keep = 1e15}
if #ARGV < 3 or #ARGV % 2 == 0 then
  return redis.error_reply('BADARGS configure takes now, then pairs of name and value')
end
for i = 2, #ARGV, 2 do
  local name, value = ARGV[i], ARGV[i + 1]
  local number = string.find(value, '^%d+$') and tonumber(value)
  local least = name == 'max_crashes' and 0 or 1
  if not most[name] then
    return redis.error_reply('BADARGS configure knows max_attempts, max_crashes, max_messages, max_payload_bytes, '
      .. 'dead_keep_ms, dead_keep')
  end
  if not (name == 'max_messages' and value == '') and not (number and number >= least and number <= most[name]) then
    return redis.error_reply('BADARGS ' .. name .. ' must be ' .. least .. ' to ' .. int(most[name]))
  end
end
--- use: needs_map
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
create()
for i = 2, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', META, ARGV[i])
  else
    redis.call('HSET', META, ARGV[i], ARGV[i + 1])
  end
end
return {finish(true), 'OK'}

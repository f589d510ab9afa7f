#!lua flags=allow-oom
-- configure: sets limits of the queue. A limit that is not named stays as it is.
-- KEYS   the ten of the queue; configure makes them if they do not exist
-- ARGV   now | name, value pairs (default in brackets):
--        max_attempts 1 to 1,000,000 (20); max_crashes 0 to 1,000,000 (5);
--        max_messages 1 to 10^15, empty for none (none); max_payload_bytes 1 to 16,777,216 (1,048,576);
--        dead_keep_ms 1 to 3,155,760,000,000 (30 days);
--        dead_keep 1 to 10^15 (100,000);
--        rate N/W/B, at most N starts in any W ms and B at once: N 1 to 1,000,000, W 1 to 2,592,000,000 (30 days),
--        B 1 to N; empty for none (none); max_leased 1 to 1,000,000, empty for none (none);
--        max_throttle_ms 1 to 3,155,760,000,000 (15 minutes); max_remembered 1 to 10^15 (1,000,000);
--        life_keep_ms 0 to 3,155,760,000,000, empty for none (none): it gives the queue layout 5;
--        layout 3, which releases before 0.2 refuse: on_conflict=next needs it
-- Reply  {header, OK}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(1)
-- Again  the same

--- use: prelude
--- use: create
local most = {max_attempts = 1000000, max_crashes = 1000000, max_messages = 1e15, max_payload_bytes = 16777216,
  dead_keep_ms = 3155760000000, dead_keep = 1e15, max_leased = 1000000, max_throttle_ms = 3155760000000, rate = 0,
  max_remembered = 1e15, life_keep_ms = 3155760000000, layout = 3}
local may_be_empty = {max_messages = true, max_leased = true, rate = true, life_keep_ms = true}
local function is_rate(text)
  local starts, window_ms, at_once = string.match(text, '^([1-9]%d*)/([1-9]%d*)/([1-9]%d*)$')
  return starts and tonumber(starts) <= 1000000 and tonumber(window_ms) <= 2592000000
    and tonumber(at_once) <= tonumber(starts)
end
if #ARGV < 3 or #ARGV % 2 == 0 then
  return redis.error_reply('BADARGS configure takes now, then pairs of name and value')
end
for i = 2, #ARGV, 2 do
  local name, value = ARGV[i], ARGV[i + 1]
  local number = string.find(value, '^%d+$') and tonumber(value)
  local least = (name == 'max_crashes' or name == 'life_keep_ms') and 0 or name == 'layout' and 3 or 1
  if not most[name] then
    return redis.error_reply('BADARGS configure knows max_attempts, max_crashes, max_messages, max_payload_bytes, '
      .. 'dead_keep_ms, dead_keep, rate, max_leased, max_throttle_ms, max_remembered, life_keep_ms, layout')
  end
  if value == '' and may_be_empty[name] or name == 'rate' and is_rate(value) then
    number = least
  elseif name == 'rate' then
    return redis.error_reply('BADARGS rate must be N/W/B: N starts 1 to 1000000, in a window of W ms 1 to 2592000000, '
      .. 'of them at once B 1 to N')
  elseif not (number and number >= least and number <= most[name]) then
    return redis.error_reply('BADARGS ' .. name .. ' must be ' .. least .. ' to ' .. int(most[name]))
  end
end
--- use: needs_map
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
create()
for i = 2, #ARGV, 2 do
  if ARGV[i] == 'layout' then
    layout = math.max(layout, 3) .. '' -- of schedules it is 4
    redis.call('HSET', META, 'layout', layout)
  elseif ARGV[i + 1] == '' then
    redis.call('HDEL', META, ARGV[i])
  else
    if ARGV[i] == 'life_keep_ms' then
      -- First of all, for scripts of an older release must not work on it. A queue of layout 3 may have next messages.
      redis.call('HSET', META, 'layout', '5', unpack(layout > '2' and layout < '5' and {'nexts', '1'} or {}))
      layout = '5'
    end
    redis.call('HSET', META, ARGV[i], ARGV[i + 1])
  end
end
local reopened
for i = 2, #ARGV, 2 do
  if ARGV[i] == 'rate' then
    --- use: forget_rate_opening
  end
end
if redis.call('HGET', META, 'rate') or redis.call('HGET', META, 'max_leased') then
  redis.call('HSET', META, 'selective', '1') -- claim looks for limits
end
return {finish(true), 'OK'}

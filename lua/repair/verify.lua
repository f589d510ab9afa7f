#!lua flags=allow-oom
-- verify: checks the parts of the queue that are the same whatever its messages are, and repairs them if asked:
--         placeholders, numbers in meta, encodings, the wake-up list, the ready limit. `audit` checks the messages.
-- KEYS   the ten of the queue
-- ARGV   now | 1 to repair, else empty
-- Reply  {header, {{kind, what, detail, 1 if repaired else 0}, ...}}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(1)
-- Again  finds what was not repaired

--- use: prelude
--- use: create
--- use: is_counter
local repairs = ARGV[2] == '1'
if #ARGV ~= 2 or not (repairs or ARGV[2] == '') then
  return redis.error_reply('BADARGS verify takes now, 1 (to repair) or empty')
end
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
local placeholder, entries, findings, repaired = '\0' .. string.rep('-', 70), 0, {}, 0
local reads = {'ZCARD', 'LLEN', 'ZCARD', 'HLEN', 'HLEN', 'HLEN', 'ZCARD', 'ZCARD', 'ZCARD', 'HLEN'}
for i = 1, 9 do
  entries = entries + redis.call(reads[i], KEYS[i])
end
local function found(kind, what, detail, repair)
  if repairs and repair then
    repair()
    repaired = repaired + 1
  end
  findings[#findings + 1] = {kind, what, detail, repairs and repair and 1 or 0}
end

if not layout and entries > 0 then
  found('meta', 'layout', '', slash == '' and create) -- only remap creates a partition beside the home
end
if not layout then return {finish(false, true), findings} end
if not incarnation or incarnation == '' then
  found('meta', 'incarnation', '', function()
    incarnation = string.sub(redis.sha1hex(int(now_us) .. base), 1, 16)
    redis.call('HSET', META, 'incarnation', incarnation)
  end)
end
if seq and not is_counter(seq) then -- now_us is more than the number of calls can be
  found('meta', 'seq', seq, function() redis.call('HSET', META, 'seq', int(now_us)) end)
end
if not repairs then -- the header needs both
  seq, incarnation = seq and is_counter(seq) and seq or '0', incarnation or ''
end
local test = ARGV[1] == '' and redis.call('HGET', META, 'test')
if test then -- a caller with a clock of its own wants the field test
  found('meta', 'test', test, function() redis.call('HDEL', META, 'test') end)
end
local numbers = {'max_attempts', 'max_crashes', 'max_messages', 'max_payload_bytes', 'dead_keep_ms', 'dead_keep',
  'max_leased', 'max_throttle_ms', 'max_remembered', 'life_keep_ms', 'leader_until', 'last_beat', 'reap_after',
  'parked_until', 'epoch', 'mapped_ms', 'departed', 'roster', 'schedules', 'low_lists', 'dry_lists', 'break_until',
  'windows_until', 'ended_until', 'largest_payload_bytes', 'pushed', 'claimed', 'acked', 'repeated', 'retried',
  'released', 'crashed', 'died', 'cancelled', 'requeued', 'purged', 'trimmed', 'expired', 'throttled', 'snoozed'}
local values = redis.call('HMGET', META, unpack(numbers))
for i, name in ipairs(numbers) do
  local value = values[i]
  local sound = not value or i > 23 and is_counter(value) or i <= 23 and #value <= 16 and string.find(value, '^%d+$')
  if not sound then
    found('meta', name, value, function()
      if name == 'largest_payload_bytes' then
        redis.call('HSET', META, name, '16777216') -- the most that a queue may allow
      else
        redis.call('HDEL', META, name)
      end
    end)
  end
end

for i, key in ipairs(KEYS) do
  if i == 2 then
    if redis.call('LINDEX', key, 0) ~= placeholder then
      found('placeholder', key, '', function() redis.call('LPUSH', key, placeholder) end)
    end
  elseif reads[i] == 'ZCARD' then
    if redis.call('ZSCORE', key, placeholder) ~= 'inf' then
      found('placeholder', key, '', function() redis.call('ZADD', key, '+inf', placeholder) end)
    end
  elseif redis.call('HEXISTS', key, placeholder) == 0 then
    found('placeholder', key, '', function() redis.call('HSET', key, placeholder, '') end)
  end
  if i ~= 2 and redis.call('EXISTS', key) == 1 and redis.call('OBJECT', 'ENCODING', key) == 'listpack' then
    found('listpack', key, '', function() -- a member this long makes it a table; it stays one without the member
      local long = placeholder .. string.rep('-', 8192)
      if reads[i] == 'ZCARD' then
        redis.call('ZADD', key, '+inf', long)
        redis.call('ZREM', key, long)
      else
        redis.call('HSET', key, long, '')
        redis.call('HDEL', key, long)
      end
    end)
  end
end

local wake, length = base .. ':wake', redis.call('LLEN', READY) - 1
local tokens = redis.pcall('LLEN', wake)
local ready = tonumber(string.match(redis.call('LINDEX', READY, 1) or '', '^%d+') or 'inf')
local waits = now - math.min(first_score(SCHEDULED), ready)
local last_beat, parked = redis.call('HGET', META, 'last_beat'), tonumber(parked_until or 0) or 0
local silence = now - math.max(tonumber(last_beat or 0) or 0, parked <= now + 60000 and parked or 0)
if type(tokens) == 'table' and string.find(tokens.err or '', 'WRONGTYPE') then
  found('wake', wake, '')
elseif tokens == 0 and not paused and waits > 3000 and silence > 3000 then -- a live node fills the list at each beat
  found('silent', wake, int(waits), function() end) -- finish fills the list
end
if length > 1000 then
  found('ready_limit', READY, int(length))
end
return {finish(repaired > 0, not repairs), findings}

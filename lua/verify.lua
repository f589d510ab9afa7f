#!lua flags=allow-oom
-- verify: looks whether the frame of the queue, what holds whatever its messages are, is as PROTOCOL.md says, and mends it, if asked:
-- sentinels, numbers in meta, encodings, the wake-up list, the window. `audit` looks at the messages.
-- KEYS   the ten of the queue
-- ARGV   now | 1 to mend, else empty
-- Reply  {header, {{kind, what, detail, 1 if mended else 0}, ...}}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(1)
-- Again  finds what is left; what was mended is not found again

--- use: prelude
--- use: create
--- use: is_counter
local repair = ARGV[2] == '1'
if #ARGV ~= 2 or not (repair or ARGV[2] == '') then return redis.error_reply('BADARGS verify takes now, 1 (to mend) or empty') end
redis.call('HSTRLEN', META, 'layout') -- an operator's right: who lacks it is refused before anything is written
local sentinel, reads = '\0' .. string.rep('-', 70), {'ZCARD', 'LLEN', 'ZCARD', 'HLEN', 'HLEN', 'HLEN', 'ZCARD', 'ZCARD', 'ZCARD', 'HLEN'}
local entries, findings, mended = 0, {}, 0
for i = 1, 9 do entries = entries + redis.call(reads[i], KEYS[i]) end
local function found(kind, what, detail, mend)
  if repair and mend then mend(); mended = mended + 1 end
  findings[#findings + 1] = {kind, what, detail, repair and mend and 1 or 0}
end

if not layout and entries > 0 then found('meta', 'layout', '', create) end
if not layout then return {finish(false, true), findings} end
if not incarnation or incarnation == '' then
  found('meta', 'incarnation', '', function()
    incarnation = string.sub(redis.sha1hex(int(now_us) .. base), 1, 16)
    redis.call('HSET', META, 'incarnation', incarnation)
  end)
end
if seq and not is_counter(seq) then -- a call later than all that were counted
  found('meta', 'seq', seq, function() redis.call('HSET', META, 'seq', int(now_us)) end)
end
if not repair then seq, incarnation = seq and is_counter(seq) and seq or '0', incarnation or '' end -- the header wants them
if test and ARGV[1] == '' then -- who calls by another clock wants it
  found('meta', 'test', test, function() redis.call('HDEL', META, 'test') end)
end
local numbers = {'max_attempts', 'max_crashes', 'max_messages', 'max_payload_bytes', 'dead_keep_ms', 'dead_keep', 'leader_until', 'last_beat', 'reap_after', 'ended_until', 'largest_payload_bytes',
  'pushed', 'claimed', 'acked', 'repeated', 'retried', 'released', 'crashed', 'died', 'cancelled', 'requeued', 'purged', 'trimmed'}
local values = redis.call('HMGET', META, unpack(numbers))
for i, name in ipairs(numbers) do
  if values[i] and not (i > 9 and is_counter(values[i]) or i <= 9 and #values[i] <= 16 and string.find(values[i], '^%d+$')) then
    found('meta', name, values[i], function()
      if name == 'largest_payload_bytes' then redis.call('HSET', META, name, '16777216') -- the most that a queue may allow
      else redis.call('HDEL', META, name) end
    end)
  end
end

for i, key in ipairs(KEYS) do
  if i == 2 then
    if redis.call('LINDEX', key, 0) ~= sentinel then found('sentinel', key, '', function() redis.call('LPUSH', key, sentinel) end) end
  elseif reads[i] == 'ZCARD' then
    if redis.call('ZSCORE', key, sentinel) ~= 'inf' then found('sentinel', key, '', function() redis.call('ZADD', key, '+inf', sentinel) end) end
  elseif redis.call('HEXISTS', key, sentinel) == 0 then
    found('sentinel', key, '', function() redis.call('HSET', key, sentinel, '') end)
  end
  if i ~= 2 and redis.call('EXISTS', key) == 1 and redis.call('OBJECT', 'ENCODING', key) == 'listpack' then
    found('listpack', key, '', function() -- a member this long turns it into a table, and a table it stays
      local long = sentinel .. string.rep('-', 8192)
      if reads[i] == 'ZCARD' then redis.call('ZADD', key, '+inf', long); redis.call('ZREM', key, long)
      else redis.call('HSET', key, long, ''); redis.call('HDEL', key, long) end
    end)
  end
end

local wake, window = base .. ':wake', redis.call('LLEN', READY) - 1
local tokens, ready = redis.pcall('LLEN', wake), tonumber(string.match(redis.call('LINDEX', READY, 1) or '', '^%d+') or 'inf')
local waits, silence = now - math.min(first_score(SCHEDULED), ready), now - (tonumber(redis.call('HGET', META, 'last_beat') or 0) or 0)
if type(tokens) == 'table' and string.find(tokens.err or '', 'WRONGTYPE') then found('wake', wake, '')
elseif tokens == 0 and not paused and waits > 3000 and silence > 3000 then -- a node that lives rings it with each beat
  found('silent', wake, int(waits), function() end) -- finish rings
end
if window > 1000 then found('window', READY, int(window)) end
return {finish(mended > 0, not repair), findings}

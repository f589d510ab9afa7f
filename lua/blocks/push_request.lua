-- The request of push and upsert, and what both read before they judge it.
--   count, ids           how many messages; their ids
--   attempt              the verb sets it before; until_text and until_ms: its first part
--   room, max_payload    limits of the queue; room: how many messages more it may hold
--   largest              META's largest_payload_bytes, at least 4,096
--   found[i]             true or the payload if message i is in the queue; else false
--   plain                true if no id has a control byte; false: look at each
--   ended[i], call_mark  what RECENT holds of id i and of this call, if it may matter
--   too_late             true if the attempt is past its until, or claims one too far ahead
local count = (#ARGV - 2) / 4
-- string.sub and string.byte, for a pattern costs as much as a command.
local until_text, dot = string.sub(attempt, 1, 13), string.byte(attempt, 14)
local until_ms, blank = tonumber(until_text), dot == 32 and 14 or dot == 46 and string.byte(attempt, 18) == 32 and 18
if count < 1 or count > 1000 or count % 1 ~= 0 or attempt ~= '' and not (until_ms and blank
  and #attempt - blank >= 8 and #attempt - blank <= 64
  and string.byte(until_text) > 48 and string.byte(until_text, 13) > 47) then
  return redis.error_reply('BADARGS push and upsert take now, attempt (until, 13 digits of ms and perhaps a dot and '
    .. '3 digits, a blank and a nonce of 8 to 64 bytes; or empty), then id, due, payload, options for 1 to 1000 '
    .. 'messages')
end
local max_messages, max_payload, ended_until, windows_until =
  unpack(redis.call('HMGET', META, 'max_messages', 'max_payload_bytes', 'ended_until', 'windows_until'))
local room = max_messages and tonumber(max_messages) + 1 - redis.call('HLEN', MESSAGES) or math.huge
if max_messages and layout and layout > '3' then -- timers of schedules take no places
  room = room + (tonumber(redis.call('HGET', META, 'schedules') or '') or 0)
end
max_payload = tonumber(max_payload or 1048576)
local largest = 4096
if count > 1 or #ARGV[5] > 4096 then
  local stored = redis.call('HGET', META, 'largest_payload_bytes')
  if stored then
    largest = string.find(stored, '^%d+$') and tonumber(stored) or 16777216 -- unreadable: assume the most
  end
end
local ARGV, ids, id_bytes = ARGV, {}, 0 -- Lua reads a local faster than a global
for i = 1, count do
  ids[i], id_bytes = ARGV[4 * i - 1], id_bytes + #ARGV[4 * i - 1]
end
local found
if largest > 4096 or count == 1 then -- HMGET would read payloads, which may be long
  found = {}
  for i = 1, count do
    found[i] = redis.call('HEXISTS', MESSAGES, ids[i]) == 1
  end
else
  found = redis.call('HMGET', MESSAGES, unpack(ids))
end
redis.call('HLEN', CLAIMS)
redis.call('HLEN', ATTRS)
redis.call('ZCARD', DEAD)
-- JSON writes control bytes longer, and some others: one call in C replaces a pattern for each id.
local plain = count > 1 and #cjson.encode(ids) == id_bytes + 3 * count + 1
local ended, call_mark, call = nil, nil, CALL_MARK .. attempt
if until_ms then
  call_mark = redis.call('ZSCORE', RECENT, call)
else
  redis.call('ZCARD', RECENT)
end
call_mark = call_mark and tonumber(call_mark) > now and tonumber(call_mark) or nil
if ended_until and (not string.find(ended_until, '^%d+$') or tonumber(ended_until) > now) then
  local names = {}
  for i = 1, count do
    names[i] = ENDED_MARK .. ids[i]
  end
  ended = redis.call('ZMSCORE', RECENT, unpack(names))
end
local windows = nil -- by message: when the window of its id ends, or nil
if windows_until and (not string.find(windows_until, '^%d+$') or tonumber(windows_until) > now) then
  local names = {}
  for i = 1, count do
    names[i] = WINDOW_MARK .. ids[i]
  end
  windows = redis.call('ZMSCORE', RECENT, unpack(names))
end
local too_late = until_ms and (until_ms <= now or until_ms > now + REPEAT_MS)
-- Results of the call:
--   replies, created     item results; how many messages are new
--   longest              the longest payload stored, or `largest`
--   payloads, dues       id, payload, ... for MESSAGES; score, id, ... for SCHEDULED
--   memory               score, name, ... for RECENT
--   remember_call        whether RECENT must remember the call as a whole
--   changed, head, length  for finish
local replies, created, longest, payloads, dues, memory, remember_call, changed, head, length

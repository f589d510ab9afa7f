#!lua flags=allow-oom
-- depart: takes messages out of this partition while the partitions change, to be stored in another one by `arrive`.
--         One batch at a time is on its way; until `done` or `back` each call replies the same one.
-- KEYS   the ten of the partition
-- ARGV   m and the epoch | done=N: batch N has arrived, and is forgotten; back=N: it never will, and is put back; or
--        empty | after: the number of an earlier batch, or 0; the next one gets a larger number | tag of the other
--        partition | stay: ms, 5,000 usually | up to 1,000 names: ids, or names of RECENT that begin with a byte 5 or 6
--        A message departs if it is dead, due later than `stay` from now, or overdue by more than 1 s; a call takes 256
--        messages or about 1 MiB at most.
-- Reply  {header, number, tag, messages, batch}; {header, 0, '', 0, ''} if none is on its way
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, REMAPPED, BEHIND: nothing was written
-- Cost   O(log n) a name; one scan of the ready list if one is ready
-- Again  the same batch

--- use: fenced_prelude
--- use: departure_marks
--- use: state_of
--- use: ready_entry
--- use: remove_ready
local verdict, number = string.match(ARGV[2] or '', '^(%l*)=?(%d*)$')
local function whole(text) return tonumber(string.match(text or '', '^%d+$') or '') end
local after, tag, stay = whole(ARGV[3]), ARGV[4], whole(ARGV[5])
--- use: is_tag
if #ARGV < 5 or #ARGV > 1005 or not after or not stay or not is_tag(tag) or tag == (slash == '' and '-' or partition)
  or not (verdict == '' and number == '' or (verdict == 'done' or verdict == 'back') and number ~= '') then
  return redis.error_reply('BADARGS depart takes now, done=N, back=N or empty, number, tag of another partition, ms, '
    .. 'then 0 to 1000 names')
end
if #ARGV > 5 then
  redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES)
redis.call('ZCARD', DEAD); redis.call('ZCARD', RECENT)
local moving, departed = unpack(redis.call('HMGET', META, 'moving', 'departed'))
local changed = false
local current, to, messages = string.match(moving or '', '^(%d+) (%S+) (%d+)$')
if current and current == number then
  if verdict == 'back' then
    --- use: land
    local batch = redis.call('HGET', CLAIMS, DEPARTED)
    land(batch and cmsgpack.unpack(batch) or {})
    -- As if the next number were used: a process that looks for what is left sees that something came back.
    departed = int((tonumber(departed or 0) or 0) + 1)
    redis.call('HSET', META, 'departed', departed)
  end
  redis.call('HDEL', CLAIMS, DEPARTED_IDS, DEPARTED)
  redis.call('HSET', META, 'moving', '')
  current, to, messages, changed = nil, nil, nil, true
end
if current or #ARGV == 5 then
  local batch = current and redis.call('HGET', CLAIMS, DEPARTED) or ''
  return {finish(changed), tonumber(current or 0), to or '', tonumber(messages or 0), batch}
end
local records, r, ids, bytes, unlisted = {}, 0, {}, 0, {}
messages = 0
local function add(name, place, score, payload, attrs)
  r, records[r + 1], records[r + 2], records[r + 3], records[r + 4], records[r + 5] =
    r + 5, name, place, score, payload, attrs
  bytes = bytes + #name + #payload + #attrs + 32
end
local function depart_memory(name)
  local score = redis.call('ZSCORE', RECENT, name)
  if not score or tonumber(score) <= now then return end
  add(name, 'recent', score, '', '')
  redis.call('ZREM', RECENT, name)
end
local function depart(id)
  local state = state_of(id)
  local ready = state == 'ready' and (ready_entry(id) or '0:')
  local score = ready and string.match(ready, '^%d+') or state == 'scheduled' and redis.call('ZSCORE', SCHEDULED, id)
    or state == 'dead' and redis.call('ZSCORE', DEAD, id)
  -- What is due soon stays: it would be late if the process that moves it died.
  if not score or state ~= 'dead' and tonumber(score) >= now - 1000 and (ready or tonumber(score) <= now + stay) then
    return
  end
  if ready then
    unlisted[ready] = true
  else
    redis.call('ZREM', SCHEDULED, id)
    redis.call('ZREM', DEAD, id)
  end
  add(id, state == 'dead' and state or 'scheduled', score, redis.call('HGET', MESSAGES, id) or '',
    redis.call('HGET', ATTRS, id) or '')
  redis.call('HDEL', MESSAGES, id)
  redis.call('HDEL', ATTRS, id)
  ids[#ids + 1], messages = id, messages + 1
  depart_memory('\5' .. id)
end
for i = 6, #ARGV do
  local mark = string.byte(ARGV[i])
  if mark == 5 or mark == 6 then
    depart_memory(ARGV[i])
    ids[#ids + 1] = string.sub(ARGV[i], mark == 5 and 2 or 3)
  else
    depart(ARGV[i])
  end
  if #ids >= 256 or bytes >= 1048576 then break end
end
if r == 0 then return {finish(changed), 0, '', 0, ''} end
remove_ready(unlisted)
current = int(math.max(now_us, after + 1, (tonumber(departed or 0) or 0) + 1))
local batch = cmsgpack.pack(records)
redis.call('HSET', CLAIMS, DEPARTED_IDS, '\n' .. table.concat(ids, '\n') .. '\n', DEPARTED, batch)
redis.call('HSET', META, 'moving', current .. ' ' .. tag .. ' ' .. int(messages), 'departed', current)
return {finish(true), tonumber(current), tag, messages, batch}

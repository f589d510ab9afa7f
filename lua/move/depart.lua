#!lua flags=allow-oom
-- depart: takes messages out of this partition while the partitions change, to be stored in another one by `arrive`.
--         One batch at a time is on its way; until `done` or `back` each call replies the same one.
-- KEYS   the ten of the partition
-- ARGV   m and the epoch | done=N: batch N has arrived, and is forgotten; back=N: it never will, and is put back; or
--        empty | after: the number of an earlier batch, or 0; the next one gets a larger number | tag of the other
--        partition, with @ if it is in another store | stay: ms, 5,000 usually | up to 1,000 names: ids, or names of
--        RECENT that begin with a byte 5 or 6
--        A message departs if it is dead, due later than `stay` from now, or overdue by more than 1 s; a call takes 256
--        messages or about 256 KiB at most.
-- Reply  {header, number, tag, messages, batch}; {header, 0, '', 0, ''} if none is on its way
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, REMAPPED, BEHIND: nothing was written
-- Cost   O(log n) a name; one scan of the ready list if one is ready
-- Again  the same batch

--- use: fenced_prelude
--- use: departure_marks
--- use: state_of
--- use: ready_entry
--- use: remove_ready
--- use: life_mark
local verdict, number = string.match(ARGV[2] or '', '^(%l*)=?(%d*)$')
local function whole(text) return tonumber(string.match(text or '', '^%d+$') or '') end
local after, tag, stay = whole(ARGV[3]), ARGV[4], whole(ARGV[5])
--- use: is_tag
--- use: is_far_tag
if #ARGV < 5 or #ARGV > 1005 or not after or not stay or not (is_tag(tag) or is_far_tag(tag))
  or tag == (slash == '' and '-' or partition)
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
local function depart_memory(names)
  local gone = {}
  for i, score in ipairs(redis.call('ZMSCORE', RECENT, unpack(names))) do
    if score and tonumber(score) > now then
      add(names[i], 'recent', score, '', '')
      gone[#gone + 1] = names[i]
    end
  end
  if #gone > 0 then
    redis.call('ZREM', RECENT, unpack(gone))
  end
end
-- What is due soon stays: it would be late if the process that moves it died.
local function may_depart(score) return score > now + stay or score < now - 1000 end
local function depart_from(zset, place, found, scores) -- found: ids that are in this zset, or nil for ready ones
  if #found == 0 then return end
  local windows, payloads = {}, redis.call('HMGET', MESSAGES, unpack(found))
  for i, attrs in ipairs(redis.call('HMGET', ATTRS, unpack(found))) do
    ids[#ids + 1], windows[i] = found[i], '\5' .. found[i]
    add(found[i], place, scores[i], payloads[i] or '', attrs or '')
  end
  if layout > '4' then
    local names = {}
    for i, id in ipairs(found) do
      names[i] = LIFE_MARK .. id
    end
    for i, life in ipairs(redis.call('HMGET', ATTRS, unpack(names))) do
      if life then
        add(names[i], 'life', '0', life, '')
      end
    end
    redis.call('HDEL', ATTRS, unpack(names))
  end
  messages = messages + #found
  if zset then
    redis.call('ZREM', zset, unpack(found))
  end
  redis.call('HDEL', MESSAGES, unpack(found))
  redis.call('HDEL', ATTRS, unpack(found))
  depart_memory(windows)
end
local function depart_other(id) -- one that is not scheduled
  local state = state_of(id)
  if state == 'dead' then
    depart_from(DEAD, 'dead', {id}, {redis.call('ZSCORE', DEAD, id)})
  elseif state == 'ready' then
    local entry = ready_entry(id) or '0:'
    local score = string.match(entry, '^%d+')
    if tonumber(score) < now - 1000 then
      unlisted[entry] = true
      depart_from(nil, 'scheduled', {id}, {score})
    end
  end
end
local function depart(chunk)
  local found, scores, others = {}, {}, {}
  for i, score in ipairs(redis.call('ZMSCORE', SCHEDULED, unpack(chunk))) do
    if not score then
      others[#others + 1] = chunk[i]
    elseif may_depart(tonumber(score)) then
      found[#found + 1], scores[#scores + 1] = chunk[i], score
    end
  end
  depart_from(SCHEDULED, 'scheduled', found, scores)
  for _, id in ipairs(others) do
    if bytes >= 262144 then break end
    depart_other(id)
  end
end
-- Payloads are read together as far as their largest size allows.
local largest = tonumber(redis.call('HGET', META, 'largest_payload_bytes') or '') or 4096
local size, chunk, seen = math.max(1, math.floor(262144 / math.max(largest, 4096))), {}, {}
for i = 6, #ARGV do
  local name, mark = ARGV[i], string.byte(ARGV[i]) or 0
  if mark == 5 or mark == 6 then
    depart_memory({name})
    ids[#ids + 1] = string.sub(name, mark == 5 and 2 or 3)
  elseif mark >= 32 and not seen[name] then
    chunk[#chunk + 1], seen[name] = name, true
  end
  if #chunk > 0 and (i == #ARGV or #chunk >= size or #ids + #chunk >= 256) then
    depart(chunk)
    chunk = {}
  end
  if #ids >= 256 or bytes >= 262144 then break end
end
if r == 0 then return {finish(changed), 0, '', 0, ''} end
remove_ready(unlisted)
current = int(math.max(now_us, after + 1, (tonumber(departed or 0) or 0) + 1))
local batch = cmsgpack.pack(records)
redis.call('HSET', CLAIMS, DEPARTED_IDS, '\n' .. table.concat(ids, '\n') .. '\n', DEPARTED, batch)
redis.call('HSET', META, 'moving', current .. ' ' .. tag .. ' ' .. int(messages), 'departed', current)
return {finish(true), tonumber(current), tag, messages, batch}

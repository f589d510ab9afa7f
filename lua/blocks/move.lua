-- Messages on their way from one partition to another: what `depart` takes, and `arrive` stores.

--- block: departure_marks
-- The batch that has left this partition and has not arrived for sure, in CLAIMS: the ids in it, each between two line
-- feeds; and the batch itself. META's `moving` says `<number> <tag> <messages>` of it, and is empty without one.
local DEPARTED_IDS, DEPARTED = '\4', '\5'

--- block: land
-- Stores the records of a batch: name, place, score, payload, attrs. place: scheduled, dead, recent for a name of
-- RECENT, or life of a message before it. An id that the partition has is left as it is: what it has is newer. Only
-- with commands that a consumer may use, whose node ends the batch of a process that died.
-- Returns how many messages were stored.
local function land(records)
  local longest, largest, expires, windows_until = 4096, 4096, false, 0
  local scheduled, dead, attributes, stored = {}, {}, {}, {}
  for i = 1, #records, 5 do
    local name, place, score, payload, attrs = unpack(records, i, i + 4)
    if place == 'recent' then
      local known = tonumber(redis.call('ZMSCORE', RECENT, name)[1] or -1)
      if known < 0 or known > 0 and known <= now then -- 0: a cancel has ended the window
        redis.call('ZADD', RECENT, score, name)
      end
      if string.byte(name) == 5 then
        windows_until = math.max(windows_until, tonumber(score))
      end
    elseif place == 'life' then
      if stored[string.sub(name, 2)] and (layout or '') > '4' then
        attributes[#attributes + 1] = name
        attributes[#attributes + 1] = payload
      end
    elseif redis.call('HSETNX', MESSAGES, name, payload) == 1 then
      stored[name] = true
      local into = place == 'dead' and dead or scheduled
      into[#into + 1] = score
      into[#into + 1] = name
      if attrs ~= '' then
        attributes[#attributes + 1] = name
        attributes[#attributes + 1] = attrs
        expires = expires or string.find(attrs, '^[^\n]*expires=') ~= nil
      end
      longest = math.max(longest, #payload)
    end
  end
  if #scheduled > 0 then
    redis.call('ZADD', SCHEDULED, unpack(scheduled))
  end
  if #dead > 0 then
    redis.call('ZADD', DEAD, unpack(dead))
  end
  if #attributes > 0 then
    redis.call('HSET', ATTRS, unpack(attributes))
  end
  if expires then -- claim looks for messages that have expired
    redis.call('HSET', META, 'expiring', '1', 'selective', '1')
  end
  if windows_until > (tonumber(redis.call('HGET', META, 'windows_until') or '') or 0) then
    redis.call('HSET', META, 'windows_until', int(windows_until))
  end
  largest = math.max(4096, tonumber(redis.call('HGET', META, 'largest_payload_bytes') or '') or 4096)
  --- use: grow_largest
  return (#scheduled + #dead) / 2
end

-- What a settlement leaves: the end of a message, its later due, the message that follows it.

--- block: outcomes
-- Remembers for the rest of their windows how these messages ended. Reads first: consumers with the rights of an older
-- release are refused before the first write. Returns what RECENT gets.
local function outcomes_of(ids, fraction)
  local names, outcomes, o, last, score, mark = {}, {}, 0, nil, nil, nil
  for i, id in ipairs(ids) do
    names[i] = WINDOW_MARK .. id
  end
  for i, ends in ipairs(#ids > 0 and redis.call('ZMSCORE', RECENT, unpack(names)) or {}) do
    if ends ~= last then -- neighbours often share the end of their window
      local left = (tonumber(ends) or 0) - now
      last, score = ends, nil
      if left > 0 and left <= 2592000000 then
        local k = math.max(0, math.ceil(math.log(left) / math.log(2) - 1e-9))
        score, mark = string.format('%.1f', now + 2 ^ k + fraction), OUTCOME_MARK .. string.char(64 + k)
      end
    end
    if score then
      outcomes[o + 1], outcomes[o + 2], o = score, mark .. ids[i], o + 2
    end
  end
  return outcomes
end

--- block: has_window
-- One or three zeros before the due in an id's claim say that a window remembers the id (two alone: to_bury); release
-- 0.1 reads the same due. Scripts before version 19 of the library wrote a w behind the due instead.
local function has_window(claim)
  return #(string.match(claim, '^(0*)%d', 17) or '') % 2 == 1 or string.find(claim, 'w', 17, true)
end

--- block: later
-- Ends a delivery with a later due: the message waits again. If it expires before that, it dies at once with this
-- error, or is dropped.
local expired, expired_dead = 0, 0
-- Deliveries with a window, by id: `find_windowed` looks for them, if a window may last. One read of RECENT refuses
-- consumers with the rights of an older release before the first write. dropped: those that expired.
--- use: recent_marks
--- use: outcomes
--- use: has_window
local windowed, dropped = {}, {}
local function find_windowed(count, first, step) -- the ids are ARGV[first], ARGV[first + step] and so on
  local ids = {}
  for i = 1, count do
    ids[i] = ARGV[first + (i - 1) * step]
  end
  for i, claim in ipairs(redis.call('HMGET', CLAIMS, unpack(ids))) do
    windowed[ids[i]] = claim and has_window(claim) and true or nil
  end
  if next(windowed) then
    redis.call('ZMSCORE', RECENT, ids[1])
  end
end
local function later(id, due, claimed_due, failures, crashes, options, reason)
  local expiry = expiry_of(options, claimed_due)
  if due > expiry then
    expired = expired + 1
    if string.find(options, 'on_expire=drop', 1, true) then
      if windowed[id] then
        dropped[#dropped + 1] = id
      end
      redis.call('HDEL', MESSAGES, id)
      redis.call('HDEL', ATTRS, id)
      if end_lives then
        end_lives({id}, 'expired')
      end
      return 'DROPPED'
    end
    expired_dead = expired_dead + 1
    local why = 'expires before it is due again' .. (reason ~= '' and ': ' .. reason or '')
    set_attrs(id, failures, crashes, nil, options, string.sub(why, 1, 1024))
    redis.call('ZADD', DEAD, now, id)
    return 'DEAD'
  end
  set_attrs(id, failures, crashes, nil, fix_expiry(options, claimed_due), reason)
  redis.call('ZADD', SCHEDULED, due, id)
  return 'SCHEDULED ' .. int(due)
end
local function count_expired()
  if expired == 0 then return end
  local outcomes = outcomes_of(dropped, DROPPED)
  if #outcomes > 0 then
    --- use: trim_recent
    redis.call('ZADD', RECENT, unpack(outcomes))
    trim_recent(#outcomes)
  end
  redis.call('HINCRBY', META, 'expired', expired)
  if expired_dead > 0 then
    redis.call('HINCRBY', META, 'died', expired_dead)
  end
end

--- block: next_mark
-- ATTRS keeps the message that follows a delivery (on_conflict=next) under this byte and the id:
-- '<due> <options>', LF, payload.
local NEXT_MARK = '\3'

--- block: next
--- use: next_mark
if (layout or '') >= '3' then -- writes nothing; consumers with the rights of an older release are refused before
  redis.call('HSETNX', MESSAGES, '\0' .. string.rep('-', 70), '')
end
local function start_next(id) -- makes it the message of this id; returns its due as text, nil if there is none
  local kept = (layout or '') >= '3' and redis.call('HGET', ATTRS, NEXT_MARK .. id) or ''
  local due, options, at = string.match(kept, '^(%d+) ([^\n]*)\n()') -- a pattern for the payload would read each byte
  if not due then return nil end
  redis.call('HDEL', ATTRS, NEXT_MARK .. id)
  redis.call('HDEL', MESSAGES, id)
  redis.call('HSETNX', MESSAGES, id, string.sub(kept, at))
  set_attrs(id, 0, 0, nil, options, '')
  redis.call('ZADD', SCHEDULED, due, id)
  if note then
    note(id, 'next', due)
  end
  return due
end

--- block: close_until
-- Closes the queue until the time `asked`, unless it is closed for longer. `break_until` lasts if the longer closing
-- was the rate's, and is forgotten. Sets `longer`: whether the queue is closed for longer than before.
local longer = asked > (opens or 0)
if asked > now and asked > (tonumber(redis.call('HGET', META, 'break_until') or '') or 0) then
  redis.call('HSET', META, 'break_until', int(asked))
end
opens = math.max(opens or 0, asked)
if longer then
  redis.call('HSET', META, 'closed_until', (closed == math.huge and 'full ' or '') .. int(opens))
  closed = math.max(closed or 0, opens)
  old_head, old_length = math.huge, 1 -- finish sees the opening as a new head: it publishes it
end

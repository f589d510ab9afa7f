-- The life of a message: what happened to it, and when. Only queues of layout 5 keep lives.

--- block: life_mark
-- ATTRS keeps the life of a message under this byte and the id: '<ms> <word> <due> <began> <node> <text>', a line for
-- each event, the latest last; what is unknown is -, or left out at the end. RECENT has the same name of a message that
-- has ended, until its life is forgotten.
local LIFE_MARK = '\7'

--- block: life
-- Both are nil in a queue of an older layout: a call there pays one comparison.
local note, end_lives
if (layout or '') > '4' then
  --- use: make_life
end

--- block: life_of_deliveries
-- As `life`, for scripts that end deliveries: attempt_of, too.
local note, end_lives, attempt_of
if (layout or '') > '4' then
  --- use: make_life
  --- use: attempt_of
end

--- block: make_life
--- use: life_mark
-- META's life_keep_ms: how long the life of a message is kept after its end; without it no event is added.
local keep_ms = tonumber(redis.call('HGET', META, 'life_keep_ms') or '')
if (keep_ms or 0) > 0 then -- end_lives writes it
  redis.call('ZCARD', RECENT)
end
local function with_event(life, word, due, attempt, text)
  local line = int(now) .. ' ' .. word .. ' ' .. (attempt or due or '-')
  if text then
    line = line .. (attempt and ' ' or ' - - ') .. string.gsub(string.sub(text, 1, 200), '%c', ' ')
  end
  if not life then return line end
  local _, more = string.gsub(life, '\n', '')
  return (more < 19 and life or string.match(life, '\n(.*)$')) .. '\n' .. line
end
-- Adds an event to the life of a message that is in the queue.
--   due      the due time that it got, as text; or nil
--   attempt  of a delivery that ends: what attempt_of returned
--   starts   whether the life begins with this event: a life of an earlier message of the id is forgotten
note = function(id, word, due, attempt, text, starts)
  if keep_ms then
    local life = not starts and redis.call('HGET', ATTRS, LIFE_MARK .. id)
    redis.call('HSET', ATTRS, LIFE_MARK .. id, with_event(life, word, due, attempt, text))
  end
end
-- Of messages that left the queue: adds the last event and keeps their lives for life_keep_ms; those of a cancel for
-- 12 s at least, for an undo. Without a word, or while RECENT is half full, it forgets them.
--   attempt  a function that returns attempt_of an id; or nil
end_lives = function(ids, word, attempt)
  local names, lives, scores = {}, {}, {}
  for i, id in ipairs(ids) do
    names[i] = LIFE_MARK .. id
  end
  local ms = word and keep_ms or 0
  if word == 'cancel' and keep_ms then
    ms = math.max(ms, REPEAT_MS)
  end
  local most = ms > 0 and (tonumber(redis.call('HGET', META, 'max_remembered') or '') or 1000000)
  if not most or 2 * (redis.call('ZCARD', RECENT) + #ids) > most then
    return redis.call('HDEL', ATTRS, unpack(names))
  end
  for i, life in ipairs(redis.call('HMGET', ATTRS, unpack(names))) do
    lives[2 * i - 1], lives[2 * i] = names[i], with_event(life, word, nil, attempt and attempt(ids[i]))
    scores[2 * i - 1], scores[2 * i] = int(now_up + ms), names[i]
  end
  redis.call('HSET', ATTRS, unpack(lives))
  redis.call('HINCRBY', META, 'ended_lives', redis.call('ZADD', RECENT, unpack(scores)))
  --- use: trim_recent
  trim_recent(#ids)
end

--- block: attempt_of
-- '<due> <began> <node>' of a delivery, before its lease ends; - for what is unknown.
--- use: since
local begins = {} -- by token: when its claim's lease began
attempt_of = function(id, claim)
  local token = string.sub(claim, 1, 16)
  local began = has_own_lease(claim) and tonumber(redis.call('HGET', CLAIMS, SINCE_MARK .. id) or 0) or begins[token]
  if not began then -- the record names all ids of the claim: it is read once
    local lease = LEASE_MARK .. token
    began = begun(redis.call('HGET', CLAIMS, lease), redis.call('ZSCORE', LEASES, lease) or 0)
    begins[token] = began
  end
  local due = tonumber(string.match(claim, '^%d+', 17) or '')
  return (due and int(due) or '-') .. ' ' .. (began > 0 and int(began) or '-') .. ' '
    .. (string.match(claim, '^@(%w%w%w%w%w%w%w)') or '-')
end

--- block: forget_lives
-- Of the first `over` names of RECENT, whose time is over. If the id is in the queue again, its life goes on. META's
-- ended_lives counts such names: mostly there are none.
local lives, ended = {}, 0
for _, name in ipairs(redis.call('ZRANGE', RECENT, '0', int(over - 1))) do
  if string.byte(name) == 7 then
    ended = ended + 1
    if redis.call('HEXISTS', MESSAGES, string.sub(name, 2)) == 0 then
      lives[#lives + 1] = name
    end
  end
end
if #lives > 0 then
  redis.call('HDEL', ATTRS, unpack(lives))
end
if ended > 0 then
  redis.call('HINCRBY', META, 'ended_lives', int(-ended))
end

--- block: note_tick
-- A tick is a new message: its life begins.
if layout > '4' and redis.call('HGET', META, 'life_keep_ms') then
  redis.call('HSET', ATTRS, '\7' .. id, int(now) .. ' tick ' .. string.match(id, '%d+$')) -- LIFE_MARK
end

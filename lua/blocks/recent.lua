-- RECENT, which remembers calls and messages.

--- block: recent_marks
-- RECENT remembers, each until its score:
--   an id + CANCELLED or PUSHED_AGAIN   it was cancelled or purged; PUSHED_AGAIN: and pushed again since then
--   CALL_MARK attempt                   this call of push was made; + PARTLY: of its items only those below count
--   CALL_MARK attempt ' ' id            such an item
--   ENDED_MARK id                       the message ended or moved near its due; the score is that time + REPEAT_MS
--   WINDOW_MARK id                      a push gave it a window: until then it creates no message of this id
--   OUTCOME_MARK, char(64 + k), id      a message with a window ended at the score - 2^k ms; + DROPPED: it expired
--   LIFE_MARK id                        the message ended; ATTRS keeps its life under the same name
-- The fractions are part of the score. META's ended_until is the latest score of ENDED_MARK, rounded up; windows_until
-- that of WINDOW_MARK.
local CALL_MARK, ENDED_MARK, WINDOW_MARK, OUTCOME_MARK = '\3', '\4', '\5', '\6'
local CANCELLED, PUSHED_AGAIN, PARTLY, DROPPED = 0.5, 0.25, 0.5, 0.5

--- block: trim_recent
local function trim_recent(count) -- removes at most `count` names of RECENT whose time is over
  local over = math.min(redis.call('ZCOUNT', RECENT, '-inf', int(now)), count)
  if over > 0 then
    if (layout or '') > '4' and (redis.call('HGET', META, 'ended_lives') or '0') ~= '0' then
      --- use: forget_lives
    end
    redis.call('ZREMRANGEBYRANK', RECENT, '0', int(over - 1))
  end
end

--- block: repeat_memory
local memory, memory_ms = {}, string.format('%.3f', now_us / 1000 + REPEAT_MS)
local function remember(score, name)
  memory[#memory + 1] = score
  memory[#memory + 1] = name
end
local function remember_end(id) remember(memory_ms, ENDED_MARK .. id) end
local function write_memory(removed) -- removed: by id, what was cancelled or purged, which ends its window
  if #memory == 0 then return end
  local latest, windows_until = unpack(redis.call('HMGET', META, 'ended_until', 'windows_until'))
  latest = latest or '0'
  if removed and windows_until then
    local ended = {}
    for id in pairs(removed) do
      ended[#ended + 1] = '0' -- not now: the clock may go back
      ended[#ended + 1] = WINDOW_MARK .. id
    end
    redis.call('ZADD', RECENT, 'XX', unpack(ended))
  end
  local later = string.find(latest, '^%d+$') and now_up + REPEAT_MS + 1 - tonumber(latest) or 0
  redis.call('ZADD', RECENT, unpack(memory))
  if later > 0 then
    redis.call('HINCRBY', META, 'ended_until', int(later))
  end
  trim_recent(#memory)
end

#!lua flags=allow-oom
-- cancel: removes waiting messages (scheduled or ready -> absent), and dead ones if asked. After CANCELLED no claim
--         grants the message.
-- KEYS   the ten of the queue
-- ARGV   now | dead: 1 to cancel dead messages too, else empty; a repetition adds since=MS, the server's time at the
--        first call | 1 to 1,000 ids
-- Reply  {header, {CANCELLED | CANCELLED earlier | CANCELLED next | LEASED | DEAD | ABSENT | MOVING | AWAY |
--        AWAY CANCELLED, ...}}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
--        CANCELLED next: a node has the message; the one that a push kept for after it is gone
-- Cost   O(log n) an id; one scan of the ready list if one is ready
-- Again  CANCELLED for 12 s after the last cancel of the id; with since, a message pushed under the id meanwhile stays

--- use: fenced_prelude
--- use: away
--- use: state_of
--- use: ready_entry
--- use: remove_ready
--- use: recent_marks
--- use: trim_recent
--- use: repeat_memory
--- use: life
local dead, since = ARGV[2], nil
if dead ~= '' and dead ~= '1' then
  dead, since = string.match(dead or '', '^(1?) ?since=(%d+)$')
end
if #ARGV < 3 or #ARGV > 1002 or not dead then
  return redis.error_reply(
    'BADARGS cancel takes now, dead (1 or empty; in a repetition also since=MS), then 1 to 1000 ids')
end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES)
redis.call('ZCARD', DEAD); redis.call('ZCARD', RECENT)
--- use: next_mark
local replies, gone, unlisted, cancelled, unfollowed = {}, 0, {}, {}, 0
local function cancel_next(id)
  local removed = (layout or '') >= '3' and redis.call('HDEL', ATTRS, NEXT_MARK .. id) or 0
  unfollowed = unfollowed + removed
  return removed == 1
end
local function remembered(id, fraction) -- the score, if RECENT holds the id with this fraction
  local recent = tonumber(redis.call('ZSCORE', RECENT, id) or 0)
  return recent > now and recent <= now_up + REPEAT_MS + 2 and recent % 1 == fraction and recent
end
local function cancelled_earlier(id) -- whether the id was cancelled since the first call, and pushed again
  local recent = remembered(id, PUSHED_AGAIN)
  return recent and math.floor(recent) - REPEAT_MS >= tonumber(since)
end
local function remember_cancel(id, ms)
  remember(string.format('%.2f', ms + REPEAT_MS + CANCELLED), id)
  remember_end(id)
  cancelled[id] = ms
end
for i = 3, #ARGV do
  local id = ARGV[i]
  local state = state_of(id)
  if since and cancelled_earlier(id) then
    replies[#replies + 1] = 'CANCELLED earlier'
  elseif state == 'leased' and cancel_next(id) then
    replies[#replies + 1] = 'CANCELLED next'
  elseif state == 'leased' or state == 'dead' and dead == '' then
    replies[#replies + 1] = string.upper(state)
  elseif state == 'absent' then
    local mark = remembered(id, CANCELLED)
    local earlier = cancelled[id] or mark and math.floor(mark) - REPEAT_MS
    -- By another caller: no undo fits its time. A probe prolongs no memory: it would never end.
    if earlier and not probes and not (since and earlier >= tonumber(since)) then
      remember_cancel(id, now_up + 1)
    end
    replies[#replies + 1] = away(id, earlier and 'CANCELLED' or nil)
  else
    if state == 'scheduled' then
      redis.call('ZREM', SCHEDULED, id)
    elseif state == 'ready' then
      unlisted[ready_entry(id) or ''] = true
    else
      redis.call('ZREM', DEAD, id)
    end
    redis.call('HDEL', MESSAGES, id)
    redis.call('HDEL', ATTRS, id)
    if end_lives then
      end_lives({id}, 'cancel')
    end
    remember_cancel(id, now_up)
    gone = gone + 1
    replies[#replies + 1] = 'CANCELLED'
  end
end
if gone > 0 then
  remove_ready(unlisted)
  redis.call('HINCRBY', META, 'cancelled', gone)
end
write_memory(cancelled)
return {finish(gone + unfollowed > 0), replies}

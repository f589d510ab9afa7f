#!lua
-- requeue: revives dead messages (dead -> scheduled, due now), by ids or the oldest ones; attempts start from zero.
--          A time to expire that has passed is forgotten; one that counts from the due time counts from now.
-- KEYS   the ten of the queue
-- ARGV   now | ids | 1 to 1,000 ids
--        now | oldest | limit: 1 to 1,000, of which a call takes 200 at most
--        | only those that died at or before this ms, or empty | perhaps at or after this ms
-- Reply  ids: {header, {REQUEUED | NOT_DEAD <state> | ABSENT | MOVING | AWAY, ...}}
--        oldest: {header, requeued, how many selected dead messages remain}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, OOM: nothing was written
-- Cost   O(log n) a message
-- Again  ids: NOT_DEAD, until it is dead again; oldest: takes the next ones

--- use: partition
if ARGV[2] == 'ids' then
  --- use: fence
end
--- use: clock
--- use: open
--- use: before
--- use: finish
--- use: away
--- use: state_of
--- use: attrs
--- use: fresh_options
--- use: life
local form, limit = ARGV[2], tonumber(ARGV[3] or '')
if not (form == 'ids' and #ARGV >= 3 and #ARGV <= 1002) and not (form == 'oldest' and (#ARGV == 4 or #ARGV == 5)
  and limit and limit >= 1 and limit <= 1000 and limit % 1 == 0 and string.find(ARGV[4], '^%d*$')
  and string.find(ARGV[5] or '0', '^%d+$')) then
  return redis.error_reply('BADARGS requeue takes now, ids, then 1 to 1000 ids; or now, oldest, limit (1 to 1000), '
    .. 'died at or before ms, and perhaps at or after ms')
end
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES); redis.call('ZCARD', DEAD)
local replies, changed, least, most = {}, 0, ARGV[5] or '-inf', ARGV[4] == '' and '(inf' or ARGV[4]
local function requeue(id)
  local _, _, _, options = attrs_of(id)
  options = fresh_options(options)
  if (tonumber(string.match(options, 'expires=(%d+)')) or now) < now then
    options = string.gsub(string.gsub(options, ' ?on_expire=%l+', ''), ' ?expires=%d+', '')
    options = string.gsub(options, '^ ', '')
  end
  redis.call('ZREM', DEAD, id)
  set_attrs(id, 0, 0, nil, options, '')
  redis.call('ZADD', SCHEDULED, now, id)
  if note then
    note(id, 'requeue', int(now))
  end
  changed = changed + 1
end
if form == 'ids' then
  for i = 3, #ARGV do
    local state = state_of(ARGV[i])
    if state == 'dead' then
      requeue(ARGV[i])
    end
    replies[i - 2] = state == 'dead' and 'REQUEUED' or state == 'absent' and away(ARGV[i]) or 'NOT_DEAD ' .. state
  end
else
  for _, id in ipairs(redis.call('ZRANGE', DEAD, least, most, 'BYSCORE', 'LIMIT', 0, math.min(limit, 200))) do
    requeue(id)
  end
end
if changed > 0 then
  redis.call('HINCRBY', META, 'requeued', changed)
end
if form == 'ids' then return {finish(changed > 0), replies} end
return {finish(changed > 0), changed, redis.call('ZCOUNT', DEAD, least, most)}

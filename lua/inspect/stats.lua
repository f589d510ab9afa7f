#!lua flags=no-writes
-- stats: counts the messages of the queue, and its calls.
-- KEYS   the ten of the queue
-- ARGV   now
-- Reply  {header, {name, value, ...}}; {header, {}} if there is no such queue. Names:
--        scheduled, due (those of them that are due), ready, leased, dead, recent, nodes,
--        nodes at the home of a queue with a map: how many nodes watch it; else how many nodes beat here
--        drained: how many of them an operator drained, at the home
--        overdue_ms (age of the oldest message that is due and unclaimed),
--        the counters pushed, claimed, acked, repeated, retried, released, crashed, died, cancelled, requeued, purged,
--        trimmed, expired, throttled, snoozed, the limits, leader_until, reap_after, leader, parked_until,
--        closed_until, full (1: as many are leased as max_leased allows), rate,
--        with a map: moving (messages on their way to another partition),
--        and of layout 4: schedules, low_lists (crons whose list needs fires), dry_lists (those whose list has none)
--        The timer of a schedule counts as scheduled, and as ready once it was promoted.
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE
-- Cost   O(log n)
-- Again  harmless

--- use: prelude
if #ARGV ~= 1 then return redis.error_reply('BADARGS stats takes now') end
if not layout then return {finish(false, true), {}} end
local oldest = math.min(old_head, tonumber(string.match(redis.call('LINDEX', READY, 1) or '', '^%d+') or math.huge))
local scheduled, ready = redis.call('ZCARD', SCHEDULED) - 1, redis.call('LLEN', READY) - 1
local dead = redis.call('ZCARD', DEAD) - 1
local leased = math.max(0, redis.call('HLEN', MESSAGES) - 1 - scheduled - ready - dead) -- each message is in one state
local nodes = redis.call('ZCOUNT', NODES, now - 3000, '(inf')
if epoch and slash == '' then -- the roster, with negative times
  nodes = redis.call('ZCOUNT', NODES, int(-now), '(' .. int(3000 - now))
end
local pairs_of = {
  'scheduled', scheduled, 'due', redis.call('ZCOUNT', SCHEDULED, '-inf', now), 'ready', ready,
  'leased', leased, 'dead', dead, 'recent', redis.call('ZCARD', RECENT) - 1,
  'nodes', nodes, 'overdue_ms', oldest <= now and now - oldest or 0,
}
local defaults = {max_attempts = 20, max_crashes = 5, max_payload_bytes = 1048576, dead_keep_ms = 2592000000,
  dead_keep = 100000, max_throttle_ms = 900000,
  max_remembered = 1000000}
for _, name in ipairs({'pushed', 'claimed', 'acked', 'repeated', 'retried', 'released', 'crashed', 'died', 'cancelled',
  'requeued', 'purged', 'trimmed', 'expired', 'throttled', 'snoozed', 'max_attempts', 'max_crashes', 'max_messages',
  'max_payload_bytes', 'dead_keep_ms',
  'dead_keep', 'max_leased', 'max_throttle_ms', 'max_remembered', 'leader_until', 'reap_after'}) do
  pairs_of[#pairs_of + 1] = name
  pairs_of[#pairs_of + 1] = tonumber(redis.call('HGET', META, name) or defaults[name] or 0)
end
pairs_of[#pairs_of + 1] = 'leader'
pairs_of[#pairs_of + 1] = redis.call('HGET', META, 'leader') or ''
pairs_of[#pairs_of + 1] = 'drained'
pairs_of[#pairs_of + 1] = select(2, string.gsub(redis.call('HGET', META, 'drained') or '', '[^\n]+', ''))
pairs_of[#pairs_of + 1] = 'parked_until'
pairs_of[#pairs_of + 1] = tonumber(parked_until or 0) or 0
pairs_of[#pairs_of + 1] = 'closed_until'
pairs_of[#pairs_of + 1] = opens or 0
pairs_of[#pairs_of + 1] = 'full'
pairs_of[#pairs_of + 1] = closed == math.huge and 1 or 0
pairs_of[#pairs_of + 1] = 'rate'
pairs_of[#pairs_of + 1] = redis.call('HGET', META, 'rate') or ''
for _, name in ipairs(layout > '3' and {'schedules', 'low_lists', 'dry_lists'} or {}) do
  pairs_of[#pairs_of + 1] = name
  pairs_of[#pairs_of + 1] = tonumber(redis.call('HGET', META, name) or 0)
end
if layout > '4' then
  pairs_of[#pairs_of + 1] = 'life_keep_ms'
  pairs_of[#pairs_of + 1] = tonumber(redis.call('HGET', META, 'life_keep_ms') or -1)
end
if epoch then
  pairs_of[#pairs_of + 1] = 'moving'
  pairs_of[#pairs_of + 1] = tonumber(string.match(redis.call('HGET', META, 'moving') or '', '%d+$') or 0)
end
return {finish(false, true), pairs_of}

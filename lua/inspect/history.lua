#!lua flags=no-writes
-- history: returns what the queue had counted at the end of each minute, hour or day, as far as reports of nodes tell.
-- KEYS   the ten of the queue
-- ARGV   now | minutes (the last 60), hours (168) or days (90)
-- Reply  {header, {record, ...}} in order of time; the last record is of now. No records if there is no such queue.
--        record: its time in ms | counters | messages in each state | lateness | handling, with `|` between:
--        the counters pushed, claimed, acked, repeated, retried, released, crashed, died, cancelled, requeued, purged,
--        trimmed, expired, throttled, snoozed; the states scheduled, ready, leased, dead; of each histogram the number
--        of its first bucket and the counts from there on, or nothing. All but the states only grow.
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE
-- Cost   O(1): at most 168 records of some 500 bytes
-- Again  harmless

--- use: prelude
--- use: history
local ring = RINGS[ARGV[2] or '']
if #ARGV ~= 2 or not ring then return redis.error_reply('BADARGS history takes now, minutes, hours or days') end
if not layout then return {finish(false, true), {}} end
local counted, lateness, handling, last = count_now(now, redis.call('ZCARD', SCHEDULED) - 1, old_length - 1,
  redis.call('ZCARD', DEAD) - 1, redis.call('HLEN', MESSAGES) - 1)
local present, fields, records = math.floor(now / ring.ms), {}, {}
for slot = present - ring.slots, present - 1 do
  fields[#fields + 1] = ring.prefix .. int(slot % ring.slots)
end
local kept, sums = redis.call('HMGET', META, unpack(fields)), histograms_of(lateness, handling)
local last_at = not string.find(last or '', '[^%d |]') and time_of(last)
for i, record in ipairs(kept) do
  local slot, at = present - ring.slots + i - 1, time_of(record)
  if last_at and math.floor(last_at / ring.ms) == slot then -- no report has come since
    records[#records + 1] = last .. sums
  elseif at and math.floor(at / ring.ms) == slot then -- else it is of an earlier round
    records[#records + 1] = record
  end
end
records[#records + 1] = counted .. sums
return {finish(false, true), records}

#!lua flags=no-writes
-- dues: counts the scheduled messages by their due times.
-- KEYS   the ten of the queue
-- ARGV   now | 0 to 60 times in ms, each later than the one before
-- Reply  {header, {due before the first time, from each time until before the next, ..., at or after the last},
--        due of the last scheduled message or -1}
--        Ready messages do not count. The timer of a schedule counts as a message that is due at the next fire; one
--        that waits for no fire does not count.
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE
-- Cost   O(times * log n): one ZCOUNT more than there are times
-- Again  harmless

--- use: prelude
local bad = #ARGV > 61
for i = 2, #ARGV do
  local time = ARGV[i]
  bad = bad or #time > 15 or not string.find(time, '^%d+$') or i > 2 and time + 0 <= ARGV[i - 1] + 0
end
if bad then
  return redis.error_reply('BADARGS dues takes now, then 0 to 60 times in ms (at most 15 digits), each later than the '
    .. 'one before')
end
local counts, from = {}, '-inf'
for i = 2, #ARGV do
  counts[i - 1] = redis.call('ZCOUNT', SCHEDULED, from, '(' .. ARGV[i])
  from = ARGV[i]
end
local never = '(' .. int(NEVER)
counts[#ARGV] = redis.call('ZCOUNT', SCHEDULED, from, never)
local last = redis.call('ZRANGE', SCHEDULED, never, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2]
return {finish(false, true), counts, tonumber(last or -1)}

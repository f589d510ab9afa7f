#!lua
-- arrive: stores a batch that `depart` took out of another partition; or decides that it never will.
-- KEYS   the ten of the partition
-- ARGV   m and the epoch | tag of the other partition | number of the batch | the batch, as depart replied it; empty: if
--        it has not arrived, it never will
-- Reply  {header, APPLIED <messages stored> | VOID <largest number from that partition>}
--        APPLIED: now or earlier; VOID: it has not arrived, and never will
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, OOM, REMAPPED, BEHIND: nothing was written
-- Cost   O(log n) a message
-- Again  APPLIED 0, or VOID

--- use: fenced_prelude
--- use: state_of
--- use: is_tag
local tag, number, batch = ARGV[2], tonumber(string.match(ARGV[3] or '', '^%d+$') or ''), ARGV[4]
local is_read, records = pcall(cmsgpack.unpack, batch or '')
if #ARGV ~= 4 or not is_tag(tag) or not number or number < 1 or number >= 9007199254740992
  or batch ~= '' and not (is_read and type(records) == 'table' and #records % 5 == 0) then
  return redis.error_reply('BADARGS arrive takes now, tag of another partition, number, batch')
end
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES)
redis.call('ZCARD', DEAD); redis.call('ZCARD', RECENT)
local field = 'arrived:' .. tag
-- Of the batches of that partition the last one decides: one at a time is on its way, with growing numbers.
local last, void = string.match(redis.call('HGET', META, field) or '0', '^(%d+)( ?v?)')
last = tonumber(last)
if number <= last then
  local applied = number == last and void == ''
  return {finish(false), applied and 'APPLIED 0' or 'VOID ' .. int(last)}
end
if batch == '' then
  redis.call('HSET', META, field, int(number) .. ' void')
  return {finish(true), 'VOID ' .. int(number)}
end
redis.call('HSET', META, field, int(number))
--- use: land
local landed = land(records)
return {finish(true), 'APPLIED ' .. int(landed)}

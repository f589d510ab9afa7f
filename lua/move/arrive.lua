#!lua
-- arrive: stores a batch that `depart` took out of another partition; or decides that it never will.
-- KEYS   the ten of the partition
-- ARGV   m and the epoch | tag of the other partition | number of the batch
--        | the batch, as depart replied it; empty: if it has not arrived, it never will
-- Reply  {header, APPLIED <messages stored> | VOID <largest number from that partition> | ABSENT}
--        APPLIED: now or earlier; VOID: it has not arrived, and never will
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, OOM, REMAPPED, BEHIND: nothing was written
-- Cost   O(log n) a message
-- Again  APPLIED 0, or VOID

--- use: fenced_prelude
--- use: state_of
--- use: is_tag
local tag, number, batch = ARGV[2], tonumber(string.match(ARGV[3] or '', '^%d+$') or ''), ARGV[4]
local function read_batch() -- its records, or nil
  local is_read, records = pcall(cmsgpack.unpack, batch)
  if not is_read or type(records) ~= 'table' or #records == 0 or #records % 5 > 0 then return nil end
  for i = 1, #records, 5 do
    local name, place, score, payload, attrs = unpack(records, i, i + 4)
    if type(name) ~= 'string' or type(score) ~= 'string' or type(payload) ~= 'string' or type(attrs) ~= 'string'
      or not string.find(score, '^%d+%.?%d*$') or #name < 1 or #name > 202
      or not (place == 'recent' and string.find(name, '^[\5\6]')
        or (place == 'scheduled' or place == 'dead') and not string.find(name, '%c')) then
      return nil
    end
  end
  return records
end
local records = batch and batch ~= '' and read_batch()
if #ARGV ~= 4 or not is_tag(tag) or not number or number < 1 or number >= 9007199254740992 or records == nil then
  return redis.error_reply('BADARGS arrive takes now, tag of another partition, number, batch')
end
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES)
redis.call('ZCARD', DEAD); redis.call('ZCARD', RECENT)
if not layout then return {finish(false), 'ABSENT'} end
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

#!lua flags=allow-oom
-- arrive: stores a batch that `depart` took out of another partition; or decides that it never will.
-- KEYS   the ten of the partition
-- ARGV   m and the epoch | tag of the other partition, with @ if it is in another store | number of the batch
--        | the batch, as depart replied it; empty: if it has not arrived, it never will
-- Reply  {header, APPLIED <messages stored> | VOID <largest number from that partition> | ABSENT}
--        APPLIED: now or earlier; VOID: it has not arrived, and never will
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, REMAPPED, BEHIND: nothing was written
-- Cost   O(log n) a message
-- Again  APPLIED 0, or VOID

--- use: fenced_prelude
--- use: is_tag
--- use: is_far_tag
local tag, number, batch = ARGV[2], tonumber(string.match(ARGV[3] or '', '^%d+$') or ''), ARGV[4]
local function read_batch() -- its records, or nil
  local is_read, records = pcall(cmsgpack.unpack, batch)
  if not is_read or type(records) ~= 'table' or #records == 0 or #records % 5 > 0 or #records > 3840 then
    return nil
  end
  for i = 1, #records, 5 do
    local name, place, score, payload, attrs = unpack(records, i, i + 4)
    if type(name) ~= 'string' or type(score) ~= 'string' or type(payload) ~= 'string' or type(attrs) ~= 'string'
      or not string.find(score, '^%d+%.?%d*$') or #name < 1 or #name > 202
      or not (place == 'recent' and string.find(name, '^[\5\6]') or place == 'life' and string.find(name, '^\7')
        or (place == 'scheduled' or place == 'dead') and not string.find(name, '%c')) then
      return nil
    end
  end
  return records
end
local records = batch and batch ~= '' and read_batch()
if #ARGV ~= 4 or not (is_tag(tag) or is_far_tag(tag)) or not number or number < 1
  or number >= 9007199254740992 or records == nil then
  return redis.error_reply('BADARGS arrive takes now, tag of another partition, number, batch')
end
if records then
  redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
end
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES)
redis.call('ZCARD', DEAD); redis.call('ZCARD', RECENT)
if not layout then return {finish(false), 'ABSENT'} end
local field = 'arrived:' .. tag
-- The last batches of that partition, oldest first, each with a v behind it if it is void. One at a time is on its way,
-- with growing numbers; after a failover the partition may ask for one again that it had sent before its last.
local known, last = {}, 0
for text, void in string.gmatch(redis.call('HGET', META, field) or '', '(%d+)(v?)') do
  last = tonumber(text)
  known[#known + 1] = text .. void
  if last == number then
    return {finish(false), void == '' and 'APPLIED 0' or 'VOID ' .. text}
  end
end
if number < last then return {finish(false), 'VOID ' .. int(last)} end
known[#known + 1] = int(number) .. (records and '' or 'v')
redis.call('HSET', META, field, table.concat(known, ' ', math.max(1, #known - 7)))
if not records then return {finish(true), 'VOID ' .. int(number)} end
--- use: land
return {finish(true), 'APPLIED ' .. int(land(records))}

#!lua flags=allow-oom
-- promote: moves due messages to the ready list (scheduled -> ready), in due order, up to the ready limit of 1,000.
-- KEYS   the ten of the queue
-- ARGV   now | limit: 1 to 1,000
-- Reply  {header, moved}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log n + moved)
-- Again  harmless

--- use: prelude
--- use: read_due
local limit = tonumber(ARGV[2])
if #ARGV ~= 2 or not limit or limit < 1 or limit > 1000 or limit % 1 ~= 0 then
  return redis.error_reply('BADARGS promote takes now, limit (1 to 1000)')
end
local room = math.min(limit, 1001 - old_length)
if not layout or paused or closed or old_head > now or room < 1 then return {finish(false), 0} end
local entries, dues = read_due(room)
local from = 1
for run = 1, #dues, 2 do
  local prefix = dues[run] .. ':'
  for i = from, dues[run + 1] do
    entries[i] = prefix .. entries[i]
  end
  from = dues[run + 1] + 1
end
redis.call('RPUSH', READY, unpack(entries))
redis.call('ZREMRANGEBYRANK', SCHEDULED, '0', #entries - 1)
-- Standbys learn that the due messages were promoted, and need not do so. Where dues are less than 25 ms apart, one
-- notice serves for many promotes.
local head = first_score(SCHEDULED)
if head - now > 25 then
  redis.pcall('SPUBLISH', base .. ':notice', head < NEVER and int(head) or '')
end
return {finish(true, false, head, old_length + #entries), #entries}

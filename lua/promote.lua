#!lua flags=allow-oom
-- promote: scheduled and due -> ready, in due order, while the ready window (1,000) has room.
-- KEYS   the ten of the queue
-- ARGV   now | limit: 1 to 1,000 | followed: 1 if a claim follows in the same pipeline (it rings for what it leaves), else empty
-- Reply  {header, moved}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log n + moved)
-- Again  harmless

--- use: prelude
--- use: read_due
local limit = tonumber(ARGV[2])
if #ARGV ~= 3 or not (ARGV[3] == '' or ARGV[3] == '1') or not limit or limit < 1 or limit > 1000 or limit % 1 ~= 0 then
  return redis.error_reply('BADARGS promote takes now, limit (1 to 1000), followed (1 or empty)')
end
local quiet = ARGV[3] == '1'
local room = math.min(limit, 1001 - old_length)
if not layout or paused or old_head > now or room < 1 then return {finish(false, quiet), 0} end
local entries, dues = read_due(room)
local from = 1
for run = 1, #dues, 2 do
  local prefix = dues[run] .. ':'
  for i = from, dues[run + 1] do entries[i] = prefix .. entries[i] end
  from = dues[run + 1] + 1
end
redis.call('RPUSH', READY, unpack(entries))
redis.call('ZREMRANGEBYRANK', SCHEDULED, '0', #entries - 1)
-- Nodes that would stand in for the leader need not. Where dues are close together one notice does for many.
local head = first_score(SCHEDULED)
if head - now > 25 then redis.pcall('SPUBLISH', base .. ':notice', head < math.huge and int(head) or '') end
return {finish(true, quiet, head, old_deadline, old_length + #entries), #entries}

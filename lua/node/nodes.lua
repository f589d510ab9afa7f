#!lua flags=no-writes
-- nodes: returns the live nodes of the queue, the last beat first, and who leads.
-- KEYS   the ten of the queue
-- ARGV   now
-- Reply  {header, number of live nodes, {{node, ms since its last beat, ms until it beats again, 1 if it leads, what
--        it told of its process, or empty, 1 if it is drained}, ...}, nodes of the roster, {{node, ms since its last
--        watch, 1 if it is drained}, ...}, leader or empty, end of its term in ms, {{node, what it told}, ...} of at
--        most 40 that fell silent}
--        What a node told: '<ms> @<text>', the time and the text of the beat.
--        A node that announced a silence is parked: the first number is 0 then, and the second one is not.
--        The roster is that of a home with a map; elsewhere it is empty.
--        At most 1,000 nodes in both lists: the numbers say how many there are.
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE
-- Cost   O(log nodes + nodes returned)
-- Again  harmless

--- use: prelude
if #ARGV ~= 1 then return redis.error_reply('BADARGS nodes takes now') end
if not layout then return {finish(false, true), 0, {}, 0, {}, '', 0, {}} end
local MOST = 1000
local leader, leader_until, fell_silent, drained =
  unpack(redis.call('HMGET', META, 'leader', 'leader_until', 'gone', 'drained'))
local function is_drained(node) return string.find(drained or '', '\n' .. node .. '\n', 1, true) and 1 or 0 end
leader_until = tonumber(leader_until or 0) or 0
if leader_until <= now then -- nobody leads
  leader, leader_until = '', 0
end
--- use: process_mark
local live, roster, watching, gone, fields = {}, {}, 0, {}, {}
local oldest = int(now - 3000)
local found = redis.call('ZRANGE', NODES, '(inf', oldest, 'BYSCORE', 'REV', 'LIMIT', 0, MOST, 'WITHSCORES')
for i = 1, #found, 2 do
  local beat = tonumber(found[i + 1])
  live[#live + 1] = {found[i], math.max(0, now - beat), math.max(0, beat - now), found[i] == leader and 1 or 0}
  fields[#live] = PROCESS_MARK .. found[i]
end
for i, told in ipairs(#live > 0 and redis.call('HMGET', CLAIMS, unpack(fields)) or {}) do
  live[i][5], live[i][6] = told or '', is_drained(live[i][1])
end
-- Silent nodes that no beat has forgotten yet, then those that one has.
found = redis.call('ZRANGE', NODES, '(' .. oldest, '0', 'BYSCORE', 'REV', 'LIMIT', 0, 20)
for i, node in ipairs(found) do
  fields[i] = PROCESS_MARK .. node
end
for i, told in ipairs(#found > 0 and redis.call('HMGET', CLAIMS, unpack(fields, 1, #found)) or {}) do
  gone[#gone + 1] = told and {found[i], told} or nil
end
for node, told in string.gmatch(fell_silent or '', '([^\t\n]+)\t([^\n]+)') do
  gone[#gone + 1] = {node, told}
end
if epoch and slash == '' then -- the roster has negative times
  local first, last = int(-now), '(' .. int(3000 - now)
  watching = redis.call('ZCOUNT', NODES, first, last)
  found = redis.call('ZRANGE', NODES, first, last, 'BYSCORE', 'LIMIT', 0, MOST - #live, 'WITHSCORES')
  for i = 1, #found, 2 do
    local node = string.sub(found[i], 2)
    roster[#roster + 1] = {node, now + tonumber(found[i + 1]), is_drained(node)}
  end
end
return {finish(false, true), redis.call('ZCOUNT', NODES, oldest, '(inf'), live, watching, roster, leader or '',
  leader_until, gone}

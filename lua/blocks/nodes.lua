-- What nodes tell of their processes.

--- block: process_mark
-- Before a node's id, in CLAIMS: '<ms> @<text>', what its last beat that had a text told. Not in META: consumers may
-- delete no field of it.
local PROCESS_MARK = '\0@'

--- block: forget_nodes
-- Forgets silent nodes. META's `gone` keeps what they told last, so that their leases can be explained: at most 20
-- lines, the latest first: node, a tab, what it told.
local gone = {}
for from = 1, #silent, 1000 do
  local some, fields = {unpack(silent, from, math.min(from + 999, #silent))}, {}
  for i, name in ipairs(some) do
    fields[i] = PROCESS_MARK .. name
  end
  for i, last in ipairs(redis.call('HMGET', CLAIMS, unpack(fields))) do
    gone[#gone + 1] = last and some[i] .. '\t' .. last or nil
  end
  redis.call('ZREM', NODES, unpack(some))
  redis.call('HDEL', CLAIMS, unpack(fields))
end
if #gone > 0 then
  for line in string.gmatch(redis.call('HGET', META, 'gone') or '', '[^\n]+') do
    gone[#gone + 1] = line
  end
  redis.call('HSET', META, 'gone', table.concat(gone, '\n', 1, math.min(#gone, 20)))
end

-- What nodes tell of their processes, and what operators tell nodes.

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

--- block: keep_drained
-- META's `drained` names the nodes that an operator drained, each between two line feeds: only those in NODES.
local named, kept = {}, '\n'
for name in string.gmatch(drained, '[^\n]+') do
  named[name] = true
end
for _, name in ipairs(redis.call('ZRANGE', NODES, '0', '-1')) do
  name = string.byte(name) == 1 and string.sub(name, 2) or name -- the roster has a byte 1
  if named[name] then
    named[name], kept = nil, kept .. name .. '\n'
  end
end
kept = kept ~= '\n' and kept or ''
if kept ~= drained then
  drained = kept
  redis.call('HSET', META, 'drained', drained)
end

--- block: drain_nodes
-- Drains the nodes that ARGV names from its third element on, or, unless `drains`, lets them take messages again. The
-- reply to its next beat tells a node. Results: OK; GONE: it is not alive; FULL: 100 nodes are drained.
if #ARGV < 3 or #ARGV > 102 then
  return redis.error_reply('BADARGS nodes is followed by 1 to 100 node ids')
end
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
local before = redis.call('HGET', META, 'drained') or ''
local drained, replies = before, {}
if drained ~= '' then
  --- use: keep_drained
end
local _, many = string.gsub(drained, '[^\n]+', '')
for i = 3, #ARGV do
  local node = ARGV[i]
  local beat = redis.call('ZSCORE', NODES, node) or redis.call('ZSCORE', NODES, '\1' .. node)
  local from, to = string.find(drained, '\n' .. node .. '\n', 1, true)
  if not beat or string.find(node, '%c') or math.abs(beat) < now - 3000 then
    replies[i - 2] = 'GONE'
  elseif drains and not from and many >= 100 then
    replies[i - 2] = 'FULL'
  else
    if drains and not from then
      drained, many = (drained == '' and '\n' or drained) .. node .. '\n', many + 1
    elseif from and not drains then
      drained, many = string.sub(drained, 1, from) .. string.sub(drained, to + 1), many - 1
    end
    replies[i - 2] = 'OK'
  end
end
if drained ~= before then
  redis.call('HSET', META, 'drained', drained == '\n' and '' or drained)
end
return {finish(drained ~= before), replies}

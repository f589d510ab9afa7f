#!lua flags=allow-oom
-- beat: a node says that it lives. Nodes silent for 3 s are forgotten; the leader is taken or renewed for 2.5 s; `recent`
-- and `dead` are trimmed, 500 a beat. If no node was seen for 3 s, or the clock went back, nothing is reaped for 5 s, so
-- that live nodes can extend first.
-- KEYS   the ten of the queue
-- ARGV   now | node: 1 to 200 bytes | stay, or leave to be forgotten at once
-- Reply  {header, 1 if this node has the leader, live nodes, hold ms, ready messages}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log nodes + trimmed)
-- Again  harmless

--- use: prelude
--- use: trim_recent
local node = ARGV[2]
if #ARGV ~= 3 or #node < 1 or #node > 200 or string.find(node, '%c') or not (ARGV[3] == 'stay' or ARGV[3] == 'leave') then
  return redis.error_reply('BADARGS beat takes now, node (1 to 200 bytes), stay or leave')
end
if not layout then return {finish(false), 0, 0, 0, 0} end
local leader, leader_until, seen, hold, keep_ms, keep = unpack(redis.call('HMGET', META, 'leader', 'leader_until', 'last_beat', 'reap_after', 'dead_keep_ms', 'dead_keep'))
local dead = redis.call('ZCARD', DEAD) - 1
redis.call('ZCARD', NODES); redis.call('ZCARD', RECENT); redis.call('HLEN', MESSAGES); redis.call('HLEN', ATTRS)

local silence = now - tonumber(seen or now)
if silence > 3000 or silence < 0 then hold = now + 5000 end
redis.call('ZREMRANGEBYSCORE', NODES, '-inf', now - 3000)
redis.call('ZREMRANGEBYSCORE', NODES, '(' .. int(now), '(inf') -- seen in the future: the clock went back
local free = not leader or leader == '' or tonumber(leader_until) <= now or tonumber(leader_until) > now + 2500
if ARGV[3] == 'leave' then
  redis.call('ZREM', NODES, node)
  if leader == node then leader = '' end
else
  redis.call('ZADD', NODES, now, node)
  if free then leader = node end
  if leader == node then leader_until = now + 2500 end
end
redis.call('HSET', META, 'last_beat', now, 'reap_after', hold or 0, 'leader', leader or '', 'leader_until', leader_until or 0)

trim_recent(500)
local over = math.max(dead - tonumber(keep or 100000), redis.call('ZCOUNT', DEAD, '-inf', now - tonumber(keep_ms or 2592000000)))
if over > 0 then
  local ids = redis.call('ZRANGE', DEAD, 0, math.min(over, 500) - 1)
  redis.call('ZREMRANGEBYRANK', DEAD, 0, #ids - 1)
  redis.call('HDEL', MESSAGES, unpack(ids))
  redis.call('HDEL', ATTRS, unpack(ids))
  redis.call('HINCRBY', META, 'trimmed', #ids)
end
return {finish(over > 0), leader == node and 1 or 0, redis.call('ZCARD', NODES) - 1, tonumber(hold or 0), math.max(0, redis.call('LLEN', READY) - 1)}

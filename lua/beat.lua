#!lua flags=allow-oom
-- beat: records that a node lives, and does the leader's housekeeping.
--       A node that was silent for 3 s is forgotten. A node becomes or stays leader for 2.5 s. RECENT and DEAD are
--       trimmed, 500 entries a beat. After 3 s without any beat, or a clock that went back, reaps pause for 5 s, so
--       that live nodes can extend their leases first.
-- KEYS   the ten of the queue
-- ARGV   now | node: 1 to 200 bytes | stay, or leave to be forgotten at once
-- Reply  {header, 1 if this node is the leader else 0, live nodes, reap_after ms, ready messages}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log nodes + trimmed)
-- Again  harmless

--- use: prelude
--- use: trim_recent
local node = ARGV[2]
if #ARGV ~= 3 or #node < 1 or #node > 200 or string.find(node, '%c')
  or not (ARGV[3] == 'stay' or ARGV[3] == 'leave') then
  return redis.error_reply('BADARGS beat takes now, node (1 to 200 bytes), stay or leave')
end
if not layout then return {finish(false), 0, 0, 0, 0} end
local leader, leader_until, last_beat, reap_after, keep_ms, keep = unpack(redis.call('HMGET', META,
  'leader', 'leader_until', 'last_beat', 'reap_after', 'dead_keep_ms', 'dead_keep'))
local dead = redis.call('ZCARD', DEAD) - 1
redis.call('ZCARD', NODES); redis.call('ZCARD', RECENT); redis.call('HLEN', MESSAGES); redis.call('HLEN', ATTRS)

local silence = now - tonumber(last_beat or now)
if silence > 3000 or silence < 0 then
  reap_after = now + 5000
end
redis.call('ZREMRANGEBYSCORE', NODES, '-inf', now - 3000)
redis.call('ZREMRANGEBYSCORE', NODES, '(' .. int(now), '(inf') -- beats of the future: the clock went back
local until_ms = tonumber(leader_until)
local free = not leader or leader == '' or until_ms <= now or until_ms > now + 2500
if ARGV[3] == 'leave' then
  redis.call('ZREM', NODES, node)
  if leader == node then
    leader = ''
  end
else
  redis.call('ZADD', NODES, now, node)
  if free then
    leader = node
  end
  if leader == node then
    leader_until = now + 2500
  end
end
redis.call('HSET', META, 'last_beat', now, 'reap_after', reap_after or 0, 'leader', leader or '',
  'leader_until', leader_until or 0)

trim_recent(500)
local too_old = redis.call('ZCOUNT', DEAD, '-inf', now - tonumber(keep_ms or 2592000000))
local over = math.max(dead - tonumber(keep or 100000), too_old)
if over > 0 then
  local ids = redis.call('ZRANGE', DEAD, 0, math.min(over, 500) - 1)
  redis.call('ZREMRANGEBYRANK', DEAD, 0, #ids - 1)
  redis.call('HDEL', MESSAGES, unpack(ids))
  redis.call('HDEL', ATTRS, unpack(ids))
  redis.call('HINCRBY', META, 'trimmed', #ids)
end
local ready = math.max(0, redis.call('LLEN', READY) - 1)
return {finish(over > 0), leader == node and 1 or 0, redis.call('ZCARD', NODES) - 1, tonumber(reap_after or 0), ready}

#!lua flags=allow-oom
-- beat: records that a node lives, and does the leader's housekeeping.
--       A node that was silent for 3 s is forgotten. A node becomes or stays leader for 2.5 s. RECENT and DEAD are
--       trimmed, 500 and 250 a beat. After 3 s without any beat, or a clock that went back, reaps pause for 5 s, so
--       that live nodes can extend their leases first. If the clock went back, a queue that its rate closed opens.
--       A parked node announces how long it will be silent. It stays live, and leader, for that time. Until then META's
--       parked_until makes every script publish each earlier head. Its silence pauses no reap.
-- KEYS   the ten of the queue
-- ARGV   now | node: 1 to 200 bytes | stay, or leave to be forgotten at once
--        | with stay, if the node parks: for how long, 1,000 to 60,000 ms
--        Of a queue with a map:
--        now | node | first, of the node that should lead, or second, of its standbys | perhaps park, as with stay
--        A first takes the lead from a second. A second takes a free lead only after 1 s.
--        Of these also: @ and what the node tells of its process, 2 to 200 bytes. CLAIMS keeps it.
--        Of these and leave also the last: a report, LATENESS|HANDLING, of the messages that the node's handlers took
--        since its last one. It is added to META's sums, and the history gets a record.
--        now | node | watch: enters the partition's roster, for 3 s | number of the roster that the caller has, or 0
--        | tags of partitions that need help, with a blank between
--        now | node | unwatch: leaves the roster
--        Nodes watch the home, or another partition while the home is away.
-- Reply  {header, 1 if this node is the leader else 0, live nodes, reap_after ms, ready messages, 0 while closed
--        | of layout 4: how many lists of fires need more; with a map -1 | with a map: META's moving | 1: drained}
--        drained: an operator wants that the node takes nothing new. The elements before it are there then: -1, empty
--        of watch and unwatch: {header, number of the roster, {node, ...}, {tag that asked for help within 2 s, ...}
--        | 1: drained}
--        no nodes if the caller's number is the roster's; the number is 0 without a map
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log nodes + trimmed); of watch O(nodes) if the roster changed
-- Again  harmless, but a report counts again

--- use: prelude
local node, word, park = ARGV[2], ARGV[3], 0
local attends = word == 'stay' or word == 'first' or word == 'second'
local count, report, told = #ARGV, nil, nil
if count > 3 and (attends or word == 'leave') and string.find(ARGV[count], '|', 1, true) then
  --- use: read_report
end
if count > 3 and attends and string.byte(ARGV[count]) == 64 then
  told = #ARGV[count] > 1 and #ARGV[count] <= 200 and not string.find(ARGV[count], '%c') and ARGV[count]
  count = told and count - 1 or count
end
local form = count == 3 and (attends or word == 'leave' or word == 'unwatch')
if count == 4 and attends and string.find(ARGV[4], '^%d+$') then
  park = tonumber(ARGV[4])
  form = park >= 1000 and park <= 60000
elseif count == 5 and word == 'watch' then
  --- use: is_tag
  form = #ARGV[4] <= 16 and string.find(ARGV[4], '^%d+$') and #ARGV[5] <= 2560
  for tag in string.gmatch(ARGV[5], '[^ ]+') do
    form = form and is_tag(tag)
  end
end
if not form or #node < 1 or #node > 200 or string.find(node, '%c') then
  return redis.error_reply('BADARGS beat takes now, node (1 to 200 bytes), stay, leave, first or second, and unless it '
    .. 'leaves perhaps park ms (1000 to 60000), @process (2 to 200 bytes), and a report (lateness|handling); or '
    .. 'watch, number of the roster, tags; or unwatch')
end
if word == 'watch' or word == 'unwatch' then
  -- The roster of a queue with a map: the nodes that watch its home. NODES has them with negative times, and a byte 1
  -- before the name. META's roster is the roster's number, and help has tags, each with the time at which it was given.
  if not epoch then return {finish(false, true), 0, {}, {}} end
  local number, help, drained = unpack(redis.call('HMGET', META, 'roster', 'help', 'drained'))
  number, help = tonumber(number or 0) or 0, help or ''
  local changed = redis.call('ZREMRANGEBYSCORE', NODES, int(3000 - now), '(0')
    + redis.call('ZREMRANGEBYSCORE', NODES, '-inf', '(' .. int(-now)) -- of the future: the clock went back
  if word == 'watch' then
    changed = changed + redis.call('ZADD', NODES, int(-now), '\1' .. node)
  else
    changed = changed + redis.call('ZREM', NODES, '\1' .. node)
  end
  if changed > 0 then -- a time, for a replica that becomes the master may have an older number: none is used twice
    number = math.max(number + 1, now)
    redis.call('HSET', META, 'roster', int(number))
    if (drained or '') ~= '' then
      --- use: keep_drained
    end
  end
  local names, asked, times = {}, {}, {}
  if word == 'watch' and number ~= tonumber(ARGV[4]) then
    for i, name in ipairs(redis.call('ZRANGE', NODES, '-inf', '(0', 'BYSCORE')) do
      names[i] = string.sub(name, 2)
    end
  end
  local function ask(tag, at)
    asked[#asked + 1], times[#times + 1] = tag, tag .. ':' .. int(at)
    asked[tag] = true
  end
  for tag in string.gmatch(ARGV[5] or '', '[^ ]+') do
    ask(tag, now)
  end
  for tag, at in string.gmatch(help, '([^ :]+):(%d+)') do
    if not asked[tag] and tonumber(at) <= now and now - tonumber(at) < 2000 then
      ask(tag, tonumber(at))
    end
  end
  if (ARGV[5] or '') ~= '' then
    redis.call('HSET', META, 'help', table.concat(times, ' '))
  end
  local is_drained = string.find(drained or '', '\n' .. node .. '\n', 1, true)
  return {finish(false, true), number, names, asked, is_drained and 1 or nil}
end
--- use: trim_recent
--- use: process_mark
if not layout then return {finish(false), 0, 0, 0, 0} end
local leader, leader_until, last_beat, reap_after, keep_ms, keep, drained = unpack(redis.call('HMGET', META,
  'leader', 'leader_until', 'last_beat', 'reap_after', 'dead_keep_ms', 'dead_keep', 'drained'))
local dead = redis.call('ZCARD', DEAD) - 1
redis.call('ZCARD', NODES); redis.call('ZCARD', RECENT); redis.call('HLEN', ATTRS)
if told or word == 'leave' then
  redis.call('HLEN', CLAIMS)
end
local messages = redis.call('HLEN', MESSAGES)

-- A time beyond the longest park is no announcement: the clock went back.
local announced = tonumber(parked_until or 0) or 0
if announced > now + 60000 then
  announced = 0
end
local ranked = epoch or word == 'first' or word == 'second'
local leader_rank = ranked and redis.call('HGET', META, 'leader_rank') -- the word of the leader's last beat
-- Silent nodes, but not those of the roster.
local silent = redis.call('ZRANGE', NODES, epoch and '0' or '-inf', now - 3000, 'BYSCORE')
local fell_silent = #silent > 0
-- Beats of the future that no node announced: the clock went back. Those that live beat again, and tell again.
for _, name in ipairs(redis.call('ZRANGE', NODES, '(' .. int(math.max(now, announced)), '(inf', 'BYSCORE')) do
  silent[#silent + 1] = name
end
if #silent > 0 then
  --- use: forget_nodes
end
local silence = now - tonumber(last_beat or now)
if silence < 0 or silence > 3000 and (fell_silent or now - announced > 3000) then
  reap_after = now + 5000
end
local reopened
if silence < 0 then -- the opening that the rate chose may be far ahead now
  --- use: forget_rate_opening
end
local until_ms = tonumber(leader_until)
local free = not leader or leader == '' or until_ms <= now or until_ms > math.max(now + 2500, announced)
if word == 'first' and leader_rank == 'second' then
  free = true
elseif word == 'second' and free and until_ms and until_ms <= now and now - until_ms < 1000 then
  free = false
end
if word == 'leave' then
  redis.call('ZREM', NODES, node)
  redis.call('HDEL', CLAIMS, PROCESS_MARK .. node)
  if leader == node then
    leader = ''
    leader_until = epoch and now or leader_until -- a second counts from now
  end
else
  redis.call('ZADD', NODES, now + park, node)
  if free then
    leader = node
  end
  if leader == node then
    leader_until = now + math.max(2500, park)
  end
end
if park > 0 then
  announced = math.max(announced, now + park)
end
if announced ~= (tonumber(parked_until or 0) or 0) then
  parked_until = int(announced)
  redis.call('HSET', META, 'parked_until', parked_until)
end
redis.call('HSET', META, 'last_beat', now, 'reap_after', reap_after or 0, 'leader', leader or '',
  'leader_until', leader_until or 0)
if (drained or '') ~= '' and (fell_silent or word == 'leave') then
  --- use: keep_drained
end
if told then
  redis.call('HSET', CLAIMS, PROCESS_MARK .. node, now .. ' ' .. told)
end
if ranked and leader == node and leader_rank ~= word then
  redis.call('HSET', META, 'leader_rank', word)
end

trim_recent(500)
local too_old = redis.call('ZCOUNT', DEAD, '-inf', now - tonumber(keep_ms or 2592000000))
local over = math.max(dead - tonumber(keep or 100000), too_old)
if over > 0 then
  local ids = redis.call('ZRANGE', DEAD, 0, math.min(over, 250) - 1)
  redis.call('ZREMRANGEBYRANK', DEAD, 0, #ids - 1)
  redis.call('HDEL', MESSAGES, unpack(ids))
  redis.call('HDEL', ATTRS, unpack(ids))
  --- use: life
  if end_lives then
    end_lives(ids)
  end
  redis.call('HINCRBY', META, 'trimmed', #ids)
  dead, messages = dead - #ids, messages - #ids
end
if report then
  --- use: add_report
end
local ready = closed and 0 or math.max(0, redis.call('LLEN', READY) - 1)
local nodes = epoch and redis.call('ZCOUNT', NODES, '0', '(inf') or redis.call('ZCARD', NODES) - 1
local header = finish(over > 0 or reopened)
local low = layout > '3' and tonumber(redis.call('HGET', META, 'low_lists') or 0) or epoch and -1 or nil
local moving = epoch and redis.call('HGET', META, 'moving') or nil
if drained and string.find(drained, '\n' .. node .. '\n', 1, true) then
  return {header, leader == node and 1 or 0, nodes, tonumber(reap_after or 0), ready, low or -1, moving or '', 1}
end
-- The reply ends at nil.
return {header, leader == node and 1 or 0, nodes, tonumber(reap_after or 0), ready, low, moving}

-- The roster of a queue with a map: the nodes that watch its home. NODES has them with negative times, and a byte 1
-- before the name. META's roster is the roster's number, and help has tags, each with the time at which it was given.
if not epoch then return {finish(false, true), 0, {}, {}} end
local number, help = unpack(redis.call('HMGET', META, 'roster', 'help'))
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
return {finish(false, true), number, names, asked}

-- Fills a queue with messages of one kind, as the scripts would have stored them. For the tests of costs only.
-- KEYS  the ten of the queue;  ARGV  now | kind | from | to | ids of a claim | how many leased ids are in such claims
local SCHEDULED, READY, LEASES, CLAIMS, MESSAGES, ATTRS, DEAD, _, _, META = unpack(KEYS)
local now, kind, from, to = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local payload, long = string.rep('x', 100), string.rep('-', 20)
local function int(number) return string.format('%.0f', number) end
local function store(id, attrs)
  redis.call('HSET', MESSAGES, id, payload)
  if attrs then
    redis.call('HSET', ATTRS, id, attrs .. '\n')
  end
end
local granted = {}
for i = from, to do
  local id = kind .. string.format('%08d', i)
  if kind == 'leased' or kind == 'late' or kind == 'rest' then -- other clients claim up to 1,000; of rest two are left
    local most = kind == 'leased' and i < tonumber(ARGV[6]) and tonumber(ARGV[5]) or 1000
    id = id .. long
    local token = string.format('%s%0' .. (16 - #kind) .. 'd', kind, math.floor(i / most))
    if kind ~= 'rest' or i % 500 == 0 then
      store(id, kind == 'leased' and '0 0 - max_attempts=5 window=60000')
      redis.call('HSET', CLAIMS, id, token .. int(now - 1000) .. (kind == 'leased' and 'w' or ''))
    end
    granted[#granted + 1] = id
    if #granted == most or i == to then
      redis.call('HSET', CLAIMS, '\1' .. token, table.concat(granted, '\n'), '\2' .. token, kind == 'rest' and 2 or #granted)
      redis.call('ZADD', LEASES, now + (kind == 'leased' and 3600000 or -1), '\1' .. token)
      granted = {}
    end
  elseif kind == 'dead' then
    store(id, '5 0 - max_attempts=5 window=60000')
    redis.call('ZADD', DEAD, now - 1000 - i % 1000, id)
  elseif kind == 'expired' or kind == 'limited' then
    store(id, '0 0 - expires=+1 on_expire=drop window=60000')
    redis.call('ZADD', SCHEDULED, now - 3000, id)
  elseif kind == 'ready' then
    store(id, '0 0 - max_attempts=5')
    redis.call('RPUSH', READY, int(now - 2000) .. ':' .. id)
  elseif kind == 'schedule' then -- copies of the four schedules copy0 to copy3, which are due
    local name, copy = 'team/service/' .. id, 'copy' .. i % 4
    local record, fires = unpack(redis.call('HMGET', META, 'schedule:' .. copy, 'fires:' .. copy))
    redis.call('HSET', META, 'schedule:' .. name, record)
    if fires then
      redis.call('HSET', META, 'fires:' .. name, fires)
    end
    redis.call('HSET', MESSAGES, '\4' .. name, payload)
    redis.call('ZADD', SCHEDULED, now - 3600000 + i, '\4' .. name)
    granted[#granted + 1] = name
  elseif kind == 'scheduled' then
    store(id, '0 0 - max_attempts=5 window=60000')
    redis.call('ZADD', SCHEDULED, now + 3600000 + i, id)
  else -- due or limited
    store(id, '0 0 - max_attempts=5 ' .. (kind == 'due' and '' or 'expires=+3600000 cost=3 ') .. 'window=60000')
    redis.call('ZADD', SCHEDULED, now - 2000 + i % 1000, id)
  end
end
if kind == 'schedule' then
  local set = redis.call('HGET', META, 'schedules:set') or '\n'
  redis.call('HSET', META, 'schedules:set', set .. (set ~= '\n' and '\n' or '') .. table.concat(granted, '\n'))
  redis.call('HINCRBY', META, 'schedules', to - from + 1)
elseif kind == 'expired' or kind == 'limited' then
  redis.call('HSET', META, 'expiring', '1', 'selective', '1')
end

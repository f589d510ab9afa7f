-- Each message is in one state, so the leased ones are what the others leave.
local leased = redis.call('HLEN', KEYS[5]) - redis.call('ZCARD', KEYS[1]) - redis.call('LLEN', KEYS[2])
  - redis.call('ZCARD', KEYS[7]) + 2

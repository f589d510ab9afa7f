-- Deliveries with a window, by id: `find_windowed` looks for them, if a window may last. A read of RECENT then
-- refuses consumers with the rights of an older release before the first write. dropped: those that expired.
--- use: recent_marks
--- use: outcomes
local windowed, dropped = {}, {}
local function find_windowed(count, first, step) -- the ids are ARGV[first], ARGV[first + step] and so on
  local ids = {}
  for i = 1, count do
    ids[i] = ARGV[first + (i - 1) * step]
  end
  for i, claim in ipairs(redis.call('HMGET', CLAIMS, unpack(ids))) do
    windowed[ids[i]] = claim and string.find(claim, WINDOW_FLAG, 17, true) and true or nil
  end
  if next(windowed) then
    redis.call('ZMSCORE', RECENT, ids[1])
  end
end

-- Deliveries with a window, by id: `find_windowed` looks for them, if a window may last. One read of RECENT refuses
-- consumers with the rights of an older release before the first write. dropped: those that expired.
--- use: recent_marks
--- use: outcomes
--- use: has_window
local windowed, dropped = {}, {}
local function find_windowed(count, first, step) -- the ids are ARGV[first], ARGV[first + step] and so on
  local ids = {}
  for i = 1, count do
    ids[i] = ARGV[first + (i - 1) * step]
  end
  for i, claim in ipairs(redis.call('HMGET', CLAIMS, unpack(ids))) do
    windowed[ids[i]] = claim and has_window(claim) and true or nil
  end
  if next(windowed) then
    redis.call('ZMSCORE', RECENT, ids[1])
  end
end

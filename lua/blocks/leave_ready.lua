-- Removes these members, the keys of `gone`, from READY: one read and one write of the list. The placeholder stays.
local function leave_ready(gone)
  if not next(gone) then return end
  local rest = {}
  for _, entry in ipairs(redis.call('LRANGE', READY, '1', '-1')) do
    if not gone[string.match(entry, '^%d+:(.*)$') or ''] then
      rest[#rest + 1] = entry
    end
  end
  redis.call('LTRIM', READY, '0', '0')
  for i = 1, #rest, 1000 do
    redis.call('RPUSH', READY, unpack(rest, i, math.min(i + 999, #rest)))
  end
end

-- Reads the first `room` due messages of SCHEDULED; there must be one. Returns their ids, and their dues as runs of
-- equal dues: due, index of the run's last id, due, index, ...
local function read_due(room)
  local ids, dues, r = redis.call('ZRANGE', SCHEDULED, '-inf', now, 'BYSCORE', 'LIMIT', '0', room), {}, 0
  -- ZMSCORE and not ZSCORE: consumers have no right to ZSCORE, so that the scripts of producers are refused to them.
  local last = tonumber(redis.call('ZMSCORE', SCHEDULED, ids[#ids])[1])
  -- Reading a score costs more than all else here. Where dues are dense, one ZCOUNT for each ms costs less. Beyond 9e15
  -- a number plus one may be the same number.
  if old_head >= 0 and last < 9e15 and (last - old_head + 1) * 2.5 <= #ids then
    local n, due, text = 0, math.floor(old_head), int(math.floor(old_head))
    while n < #ids do
      local after = int(due + 1)
      local same = due >= math.floor(last) and #ids or n + redis.call('ZCOUNT', SCHEDULED, text, '(' .. after)
      if same > n then
        dues[r + 1], dues[r + 2], r, n = text, same, r + 2, same
      end
      due, text = due + 1, after
    end
  else
    local found = redis.call('ZRANGE', SCHEDULED, '0', #ids - 1, 'WITHSCORES')
    for i = 1, #ids do
      if found[2 * i] ~= dues[r - 1] then
        dues[r + 1], r = found[2 * i], r + 2
      end
      dues[r] = i
    end
  end
  return ids, dues
end

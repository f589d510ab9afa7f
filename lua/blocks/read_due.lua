local function read_due(room) -- the first so many of scheduled that are due, at least one: their ids; their dues, each with the last place of its run
  local ids, dues, r = redis.call('ZRANGE', SCHEDULED, '-inf', now, 'BYSCORE', 'LIMIT', '0', room), {}, 0
  -- Not by ZSCORE, which a consumer may not (PROTOCOL.md, least rights): without it the scripts of producers are refused it.
  local last = tonumber(redis.call('ZMSCORE', SCHEDULED, ids[#ids])[1])
  -- Reading a score costs more than all else here: where messages are close together, they are counted by the millisecond.
  if old_head >= 0 and last < 9e15 and (last - old_head + 1) * 2.5 <= #ids then -- beyond, a number plus one may be the same number
    local n, due, text = 0, math.floor(old_head), int(math.floor(old_head))
    while n < #ids do
      local after = int(due + 1)
      local same = due >= math.floor(last) and #ids or n + redis.call('ZCOUNT', SCHEDULED, text, '(' .. after)
      if same > n then dues[r + 1], dues[r + 2], r, n = text, same, r + 2, same end
      due, text = due + 1, after
    end
  else
    local found = redis.call('ZRANGE', SCHEDULED, '0', #ids - 1, 'WITHSCORES')
    for i = 1, #ids do
      if found[2 * i] ~= dues[r - 1] then dues[r + 1], r = found[2 * i], r + 2 end
      dues[r] = i
    end
  end
  return ids, dues
end

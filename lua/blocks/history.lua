-- META's `history` has the counters at the last report; `lateness` and `handling` are the sums of all reports: a double
-- for each of 68 buckets. The fields m0 to m59, h0 to h167 and d0 to d89 have the record at the end of each minute,
-- hour and day: minute N of Unix time has the field m and N modulo 60.
local RINGS = {
  minutes = {prefix = 'm', ms = 60000, slots = 60},
  hours = {prefix = 'h', ms = 3600000, slots = 168},
  days = {prefix = 'd', ms = 86400000, slots = 90},
}
-- The first part of a record: its time in ms, the counters, the numbers of messages in each state. Returns also
-- `lateness`, `handling` and `history`.
local function count_now(at, scheduled, ready, dead, messages)
  local counters = redis.call('HMGET', META, 'pushed', 'claimed', 'acked', 'repeated', 'retried', 'released', 'crashed',
    'died', 'cancelled', 'requeued', 'purged', 'trimmed', 'expired', 'throttled', 'snoozed', 'lateness', 'handling',
    'history')
  for i = 1, 15 do
    counters[i] = counters[i] or '0'
  end
  local leased = messages - scheduled - ready - dead -- each message is in one state
  return string.format('%.0f|%s|%d %d %d %d', at, string.sub(table.concat(counters, ' ', 1, 15), 1, 255),
    math.max(0, scheduled), math.max(0, ready), math.max(0, leased), math.max(0, dead)), unpack(counters, 16, 18)
end
local function time_of(record) -- or of its first part; nil if no script wrote it
  local at = record and #record <= 4096 and string.match(record, '^(%d+)|')
  return at and #at < 16 and tonumber(at) or nil
end
-- What follows in a record: for each histogram the number of its first bucket and the counts from there on, or nothing.
local function histograms_of(lateness, handling)
  local texts = {}
  for i, sums in ipairs({lateness or '', handling or ''}) do
    local counts, first, last = #sums == 544 and {struct.unpack('<' .. string.rep('d', 68), sums)} or {}, nil, 0
    for bucket = 1, 68 do
      local count = counts[bucket]
      if count and count >= 1 then -- not NaN
        first, last, counts[bucket] = first or bucket, bucket, int(math.min(math.floor(count), 9007199254740991))
      else
        counts[bucket] = '0'
      end
    end
    texts[i] = first and int(first - 1) .. ' ' .. table.concat(counts, ' ', first, last) or ''
  end
  return '|' .. texts[1] .. '|' .. texts[2]
end

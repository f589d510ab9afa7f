-- The history of a queue, and the reports of nodes for it.

--- block: history
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

--- block: add_report
--- use: history
local counted, lateness, handling, last =
  count_now(now, redis.call('ZCARD', SCHEDULED) - 1, redis.call('LLEN', READY) - 1, dead, messages - 1)
local function add(sums, numbers) -- adds a histogram of the report
  sums = sums and #sums == 544 and sums or string.rep('\0', 544) -- of a field that no script wrote: from 0 again
  local more, at = #numbers - 1, 8 * (numbers[1] or 0)
  if more < 1 then return sums end
  local form = '<' .. string.rep('d', more)
  local counts = {struct.unpack(form, sums, at + 1)}
  for i = 1, more do
    counts[i] = counts[i] + numbers[i + 1]
  end
  return string.sub(sums, 1, at) .. struct.pack(form, unpack(counts, 1, more)) .. string.sub(sums, at + 8 * more + 1)
end
local written = {'history', counted, 'lateness', add(lateness, report[1]), 'handling', add(handling, report[2])}
local function write(ring, slot, record)
  written[#written + 1], written[#written + 2] = ring.prefix .. int(slot % ring.slots), record
end
local at = time_of(last)
if not at then -- the first report: no slot has what was counted before
  for _, ring in pairs(RINGS) do
    local slot = math.floor(now / ring.ms)
    write(ring, slot - 1, int(slot * ring.ms - 1) .. string.match(counted, '|.*') .. histograms_of(lateness, handling))
  end
elseif at > now then -- the clock went back: no slot may be of the future
  for _, ring in pairs(RINGS) do
    for slot = 0, ring.slots - 1 do
      local time = time_of(redis.call('HGET', META, ring.prefix .. slot))
      if time and time > now then
        write(ring, slot, '')
      end
    end
  end
elseif math.floor(at / 60000) < math.floor(now / 60000) and not string.find(last, '[^%d |]') then
  last = last .. histograms_of(lateness, handling)
  for _, ring in pairs(RINGS) do
    local slot = math.floor(at / ring.ms)
    if slot < math.floor(now / ring.ms) then
      write(ring, slot, last)
    end
  end
end
redis.call('HSET', META, unpack(written))

--- block: read_report
-- A report: two histograms of what the handlers of the node took since its last report, with a | between. A histogram:
-- the number of its first bucket, then the counts from there on; or nothing. Of 68 buckets, two an octave, bucket N has
-- the times of at most 2^(7 + N/2) us, and the last one all that are longer.
local texts = {string.match(ARGV[count], '^([%d ]*)|([%d ]*)$')}
local valid = #texts == 2 and #ARGV[count] <= 1600
for i, text in ipairs(valid and texts or {}) do
  local numbers = {}
  for number in string.gmatch(text, '%d+') do
    numbers[#numbers + 1] = tonumber(number)
    valid = valid and (#numbers == 1 or numbers[#numbers] <= 1000000000)
  end
  valid = valid and #numbers ~= 1 and (numbers[1] or 0) + #numbers <= 69
  texts[i] = numbers
end
if valid then
  report, count = texts, count - 1
end

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

-- A call that names ids says which map chose the partition: ARGV[1] is m and its epoch, and in tests a blank and the
-- clock. Another map may have the ids elsewhere.
local known -- the epoch of the call, if it has one
if clock and string.byte(clock) == 109 then
  local digits, after = string.match(clock, '^m(%d+)(.*)$')
  known, clock = tonumber(digits), after == '' and '' or string.match(after or '', '^ (.+)$')
end
if epoch or known or slash ~= '' then
  local behind = slash ~= '' and not epoch or epoch and known and known > epoch
  if behind then
    --- use: behind
  end
  if known ~= epoch then
    return redis.error_reply('REMAPPED this partition has ' .. (epoch and 'epoch ' .. int(epoch) or 'no map')
      .. ', the call has ' .. (known and 'epoch ' .. int(known) or 'no epoch') .. ': read the map in meta of the home, '
      .. 'find the partition of each id, and repeat the call with the epoch of the map')
  end
end

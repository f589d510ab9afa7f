local SCHEDULED, READY, LEASES, CLAIMS, MESSAGES, ATTRS, DEAD, RECENT, NODES, META = unpack(KEYS)
local base, queue, slash, partition = string.match(META or '', '^(dueq:{([^{}/%c]+)(/?)(%d*)}):meta$')
if #KEYS ~= 10 or not base or #queue > 128 or #slash > #partition
  or SCHEDULED ~= base .. ':scheduled' or READY ~= base .. ':ready' or LEASES ~= base .. ':leases'
  or CLAIMS ~= base .. ':claims' or MESSAGES ~= base .. ':messages' or ATTRS ~= base .. ':attrs'
  or DEAD ~= base .. ':dead' or RECENT ~= base .. ':recent' or NODES ~= base .. ':nodes' then
  return redis.error_reply('BADKEYS give the ten keys of one queue, in their order: dueq:{NAME}:scheduled, ready, '
    .. 'leases, claims, messages, attrs, dead, recent, nodes, meta')
end
local layout, incarnation, seq, paused, parked_until, closed_until =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'parked_until', 'closed_until'))
local function int(number) return string.format('%.0f', number) end
local clock, epoch = ARGV[1], nil -- epoch: of the partition's map; nil without one
if layout and layout ~= '1' then
  if layout ~= '2' and layout ~= '3' and layout ~= '4' then
    return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1, 2, 3 or 4: use a newer dueq')
  end
  if layout == '2' or redis.call('HEXISTS', META, 'map') == 1 then
    epoch = tonumber(redis.call('HGET', META, 'epoch') or 0) or 0
  end
end

--- use: next_mark
if (layout or '') >= '3' then -- writes nothing; consumers with the rights of an older release are refused before
  redis.call('HSETNX', MESSAGES, '\0' .. string.rep('-', 70), '')
end
local function start_next(id) -- makes it the message of this id; returns its due as text, nil if there is none
  local kept = (layout or '') >= '3' and redis.call('HGET', ATTRS, NEXT_MARK .. id) or ''
  local due, options, at = string.match(kept, '^(%d+) ([^\n]*)\n()') -- a pattern for the payload would read each byte
  if not due then return nil end
  redis.call('HDEL', ATTRS, NEXT_MARK .. id)
  redis.call('HDEL', MESSAGES, id)
  redis.call('HSETNX', MESSAGES, id, string.sub(kept, at))
  set_attrs(id, 0, 0, nil, options, '')
  redis.call('ZADD', SCHEDULED, due, id)
  return due
end

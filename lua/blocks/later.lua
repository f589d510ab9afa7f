-- Ends a delivery with a later due: the message waits again. If it expires before that, it dies at once with this
-- error, or is dropped.
local expired, expired_dead = 0, 0
--- use: windowed
local function later(id, due, claimed_due, failures, crashes, options, reason)
  local expiry = expiry_of(options, claimed_due)
  if due > expiry then
    expired = expired + 1
    if string.find(options, 'on_expire=drop', 1, true) then
      if windowed[id] then
        dropped[#dropped + 1] = id
      end
      redis.call('HDEL', MESSAGES, id)
      redis.call('HDEL', ATTRS, id)
      return 'DROPPED'
    end
    expired_dead = expired_dead + 1
    local why = 'expires before it is due again' .. (reason ~= '' and ': ' .. reason or '')
    set_attrs(id, failures, crashes, nil, options, string.sub(why, 1, 1024))
    redis.call('ZADD', DEAD, now, id)
    return 'DEAD'
  end
  set_attrs(id, failures, crashes, nil, fix_expiry(options, claimed_due), reason)
  redis.call('ZADD', SCHEDULED, due, id)
  return 'SCHEDULED ' .. int(due)
end
local function count_expired()
  if expired == 0 then return end
  local outcomes = outcomes_of(dropped, DROPPED)
  if #outcomes > 0 then
    --- use: trim_recent
    redis.call('ZADD', RECENT, unpack(outcomes))
    trim_recent(#outcomes)
  end
  redis.call('HINCRBY', META, 'expired', expired)
  if expired_dead > 0 then
    redis.call('HINCRBY', META, 'died', expired_dead)
  end
end

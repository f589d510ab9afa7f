-- What verify and audit check.

--- block: is_counter
local function is_counter(text) -- whether HINCRBY can add to it
  return text == '0' or #text <= 16 and string.find(text, '^[1-9]%d*$')
end

--- block: audit_parts
--- use: process_mark
local look = {} -- by part: checks one entry
function look.leases(id, score)
  local deadline, is_claim = tonumber(score), string.sub(id, 1, 1) == LEASE_MARK
  local claim = not is_claim and redis.call('HGET', CLAIMS, id) or ''
  if is_claim then -- its ids are not read
    if redis.call('HSTRLEN', CLAIMS, id) == 0 then return look_claim(id) end
  elseif not has_payload(id) then
    return report_without_payload(id, 'leased')
  elseif not readable(claim) then
    found('unclaimed', id, '', function()
      if #states_of(id) > 1 then -- leased and in another state: the other one is right
        end_lease(id)
      else
        give_own_lease(id, claim)
      end
    end)
  elseif not has_own_lease(claim) then
    found('unmarked', id, '', function()
      if shared(id, claim) then
        redis.call('ZREM', LEASES, id)
      else
        give_own_lease(id, claim)
      end
    end)
  end
  if deadline < 0 or deadline > now_up + 86400000 then
    found('score', is_claim and hex(id) or id, 'leased ' .. score, function()
      redis.call('ZADD', LEASES, 'XX', now_up + UNKNOWN_MS, id)
    end)
  end
end
function look.claims(id, claim)
  if string.sub(id, 1, 1) == COUNT_MARK then -- checked with its ids or its lease, if there are any
    local ids = LEASE_MARK .. string.sub(id, 2)
    if redis.call('HEXISTS', CLAIMS, ids) == 1 or redis.call('ZSCORE', LEASES, ids) then return end
  end
  local mark, owner = string.sub(id, 1, 2), string.sub(id, 3)
  if mark == SINCE_MARK or mark == PROCESS_MARK then -- scripts of an older release did not remove it with its owner
    local is_left = mark == SINCE_MARK and not redis.call('ZSCORE', LEASES, owner)
        and not has_own_lease(redis.call('HGET', CLAIMS, owner) or '')
      or mark == PROCESS_MARK and not redis.call('ZSCORE', NODES, owner)
    if is_left then
      local what = mark == SINCE_MARK and 'began' or 'process'
      found('unleased', owner, what, function() redis.call('HDEL', CLAIMS, id) end)
    end
    return
  end
  if (string.byte(id) or 3) < 3 then return look_claim(id) end
  if id == DEPARTED_IDS or id == DEPARTED then
    if id == DEPARTED and (redis.call('HGET', META, 'moving') or '') == '' then -- nobody would ask for it any more
      found('unleased', 'departed', '', function()
        land(cmsgpack.unpack(claim))
        redis.call('HDEL', CLAIMS, DEPARTED_IDS, DEPARTED)
      end)
    end
    return
  end
  if redis.call('ZSCORE', LEASES, id) then return end -- checked with the leases
  if leased(id) then return has_payload(id) or report_without_payload(id, 'leased') end
  local alone = has_payload(id) and #states_of(id) == 0
  found(alone and not readable(claim) and 'unclaimed' or 'unleased', id, '', function()
    if alone then
      give_own_lease(id, claim)
    else
      redis.call('HDEL', CLAIMS, id)
    end
  end)
end
function look.messages(id)
  local at = states_of(id)
  if #at > 1 then
    found('doubled', id, table.concat(at, ' '), function() remove_from_states_except(id, at[1]) end)
  elseif #at == 0 and string.byte(id) == 4 then -- a timer: it fires, and then finds its own due time
    found('unplaced', id, '', function() redis.call('ZADD', SCHEDULED, int(now), id) end)
  elseif #at == 0 and redis.call('HEXISTS', CLAIMS, id) == 0 then
    found('unplaced', id, '', function() bury(id, 'audit: it was in no state, and may have been handled') end)
  end
end
function look.scheduled(id, score)
  local due = tonumber(score)
  if not has_payload(id) then return report_without_payload(id, 'scheduled') end
  if due == math.huge and string.byte(id) ~= 4 then
    return found('score', id, 'scheduled inf', function() bury(id, 'audit: it was never due') end)
  end
  if due < 0 or due % 1 ~= 0 then
    found('score', id, 'scheduled ' .. score, function()
      redis.call('ZADD', SCHEDULED, due == math.huge and int(now) or math.max(0, math.ceil(due)), id)
    end)
  end
end
function look.dead(id, score)
  if not has_payload(id) then return report_without_payload(id, 'dead') end
  if tonumber(score) < 0 or tonumber(score) == math.huge then
    found('score', id, 'dead ' .. score, function() redis.call('ZADD', DEAD, now, id) end)
  end
end
local function look_next(id, message) -- whether a delivery runs that this message follows
  if leased(id) then return end
  found('next', id, '', function() -- the delivery ended without its script: the next message starts now
    local due, options, payload = string.match(message, '^(%d+) ([^\n]*)\n(.*)$')
    redis.call('HDEL', ATTRS, NEXT_MARK .. id)
    if due then
      remove_from_states_except(id)
      redis.call('HSET', MESSAGES, id, payload)
      set_attrs(id, 0, 0, nil, options, '')
      redis.call('ZADD', SCHEDULED, due, id)
    end
  end)
end
function look.attrs(id, value)
  if string.sub(id, 1, 1) == NEXT_MARK then return look_next(string.sub(id, 2), value) end
  if string.sub(id, 1, 1) == LIFE_MARK then
    if not has_payload(string.sub(id, 2)) and not redis.call('ZSCORE', RECENT, id) then
      found('attrs', string.sub(id, 2), 'life', function() redis.call('HDEL', ATTRS, id) end)
    end
    return
  end
  local readable_attrs = string.find(value, '^%d+ %d+ %d+ [^\n]*\n') or string.find(value, '^%d+ %d+ %- [^\n]*\n')
  if not has_payload(id) or not readable_attrs then
    found('attrs', id, has_payload(id) and '' or 'absent', function() redis.call('HDEL', ATTRS, id) end)
  end
end

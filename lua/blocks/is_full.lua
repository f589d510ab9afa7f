-- KEYS, which is global, and not the names of the keys: each local that finish uses costs 0.2 % of a call.
local function is_full()
  local most = tonumber(string.match(redis.call('HGET', KEYS[10], 'max_leased') or '', '^%d+$') or '')
  --- use: leased
  return most and leased >= most
end

-- Options say when a message expires: expires=MS, or expires=+MS from its due; expires_by=MS since a retry or a snooze
-- gave it a later due, which does not count.
local function expiry_of(options, due)
  local fixed = string.match(options, 'expires_by=(%d+)')
  if fixed then return tonumber(fixed) end
  local relative, ms = string.match(options, 'expires=(%+?)(%d+)')
  return ms and tonumber(ms) + (relative == '+' and due or 0) or math.huge
end
local function fix_expiry(options, due) -- as options say it, whatever due the message gets
  local moves = string.find(options, 'expires=+', 1, true) and not string.find(options, 'expires_by=', 1, true)
  return moves and options .. ' expires_by=' .. int(expiry_of(options, due)) or options
end

-- Remembers for the rest of their windows how these messages ended. Reads first: consumers with the rights of an older
-- release are refused before the first write. Returns what RECENT gets.
local function outcomes_of(ids, fraction)
  local names, outcomes = {}, {}
  for i, id in ipairs(ids) do
    names[i] = WINDOW_MARK .. id
  end
  for i, ends in ipairs(#ids > 0 and redis.call('ZMSCORE', RECENT, unpack(names)) or {}) do
    local left = (tonumber(ends) or 0) - now
    if left > 0 and left <= 2592000000 then
      local k = math.max(0, math.ceil(math.log(left) / math.log(2) - 1e-9))
      outcomes[#outcomes + 1] = string.format('%.1f', now + 2 ^ k + fraction)
      outcomes[#outcomes + 1] = OUTCOME_MARK .. string.char(64 + k) .. ids[i]
    end
  end
  return outcomes
end

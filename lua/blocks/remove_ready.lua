-- Removes these entries (the keys of `gone`) from READY. LREM scans, so it starts from the nearer end.
local function remove_ready(gone)
  local before = 0
  for i, found in ipairs(next(gone) and listed or {}) do
    if gone[found] then
      redis.call('LREM', READY, before <= #listed - i and 1 or -1, found)
    else
      before = before + 1
    end
  end
end

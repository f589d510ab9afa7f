local entries, listed
local function ready_entry(id) -- of a ready message: '<due ms>:<id>'
  if not entries then
    entries, listed = {}, redis.call('LRANGE', READY, 1, -1)
    for _, found in ipairs(listed) do
      entries[string.match(found, '^%d+:(.*)$') or ''] = found
    end
  end
  return entries[id]
end

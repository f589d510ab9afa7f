local memory, memory_ms = {}, string.format('%.3f', now_us / 1000 + REPEAT_MS)
local function remember(score, name)
  memory[#memory + 1] = score
  memory[#memory + 1] = name
end
local function remember_end(id) remember(memory_ms, ENDED_MARK .. id) end
local function write_memory(removed) -- removed: by id, what was cancelled or purged, which ends its window
  if #memory == 0 then return end
  local latest, windows_until = unpack(redis.call('HMGET', META, 'ended_until', 'windows_until'))
  latest = latest or '0'
  if removed and windows_until then
    local ended = {}
    for id in pairs(removed) do
      ended[#ended + 1] = '0' -- not now: the clock may go back
      ended[#ended + 1] = WINDOW_MARK .. id
    end
    redis.call('ZADD', RECENT, 'XX', unpack(ended))
  end
  local later = string.find(latest, '^%d+$') and now_up + REPEAT_MS + 1 - tonumber(latest) or 0
  redis.call('ZADD', RECENT, unpack(memory))
  if later > 0 then
    redis.call('HINCRBY', META, 'ended_until', int(later))
  end
  trim_recent(#memory)
end

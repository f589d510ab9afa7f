-- How and when a message ended whose id RECENT remembers.
local names = {id, WINDOW_MARK .. id}
for k = 0, 32 do
  names[k + 3] = OUTCOME_MARK .. string.char(64 + k) .. id
end
local scores = redis.call('ZMSCORE', RECENT, unpack(names))
local cancelled, window, how, at = tonumber(scores[1] or 0), tonumber(scores[2] or 0), nil, 0
for k = 0, 32 do -- 2^32 ms is longer than the longest window
  local score = tonumber(scores[k + 3] or 0)
  local ended = math.floor(score) - 2 ^ k
  if score > now and ended <= now and ended > at then -- the latest, if the id was used again
    how, at = score % 1 == DROPPED and 'expired' or 'finished', ended
  end
end
if cancelled > now and cancelled <= now_up + REPEAT_MS + 2 and cancelled % 1 == CANCELLED
  and math.floor(cancelled) - REPEAT_MS >= at then
  how, at = 'cancelled', math.floor(cancelled) - REPEAT_MS
end
if not how then return {finish(false, true), {}} end
return {finish(false, true), {}, how, at, window > now and window <= now_up + 2592000000 and window or 0}

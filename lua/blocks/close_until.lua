-- Closes the queue until the time `asked`, unless it is closed for longer. `break_until` lasts if the longer closing
-- was the rate's, and is forgotten. Sets `longer`: whether the queue is closed for longer than before.
local longer = asked > (opens or 0)
if asked > now and asked > (tonumber(redis.call('HGET', META, 'break_until') or '') or 0) then
  redis.call('HSET', META, 'break_until', int(asked))
end
opens = math.max(opens or 0, asked)
if longer then
  redis.call('HSET', META, 'closed_until', (closed == math.huge and 'full ' or '') .. int(opens))
  closed = math.max(closed or 0, opens)
  old_head, old_length = math.huge, 1 -- finish sees the opening as a new head: it publishes it
end

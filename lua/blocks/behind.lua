return redis.error_reply('BEHIND this partition has ' .. (epoch and 'an old' or 'no') .. ' map of the queue: call '
  .. 'remap here with forward and the map in meta of the home, and repeat the call')

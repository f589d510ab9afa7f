#!lua flags=allow-oom
-- remap: gives this partition a map of the queue's partitions.
-- KEYS   the ten of the partition; remap makes them if they do not exist
-- ARGV   now | change | expected epoch: of the partition's map, 0 without one | map: '<epoch>|<old tags>|<new tags>',
--        or '<epoch>|<old tags>|<new tags>|<url>', where the tags of one list have an @: these partitions are there
--        now | close | expected epoch | map
--        now | forward | map
--        now | remove | expected epoch
--        change: only without messages, in any state or remembered; close: whatever the partition holds; forward:
--        only if the map is newer, as a client that met BEHIND does; remove: deletes the keys of a partition without
--        messages, but for the home
-- Reply  {header, DONE | HAS <messages> | REMEMBERS <ms until the last is forgotten> | EPOCH <the partition's>}
--        DONE also if the partition has this map already, of forward if it has a newer one, and of remove if it does
--        not exist
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(tags); of change also the names in RECENT that say how a message ended, 10,000 at most
-- Again  DONE; EPOCH if another map came since

--- use: prelude
--- use: create
--- use: is_tag
--- use: is_far_tag
-- Reads a map EPOCH|OLD TAGS|NEW TAGS, or such a map with a URL, where the tags with @ are: its epoch, and its tags as
-- a set. For other text nil and the reason.
local function read_map(text)
  local number, old, new, url = string.match(text, '^([1-9]%d*)|([^|]*)|([^|]*)(|?.*)$')
  local epoch_of, known = tonumber(number), {}
  if not number or #number > 16 or epoch_of >= 9007199254740992 then
    return nil, 'must be EPOCH|OLD TAGS|NEW TAGS, with an epoch of 1 to 9007199254740991'
  end
  local is_far = string.find(text, '@', 1, true) ~= nil
  if is_far ~= (url ~= '') or is_far and (#url > 512 or not string.find(url, '^|[^|@%c ]+$')) then
    return nil, 'must end with a URL without user and password if a tag has an @, and only then'
  end
  for _, list in ipairs({old, new}) do
    local tags, seen, far = {}, {}, string.byte(list) == 64
    for tag in string.gmatch(list, '[^ ]+') do
      if not (far and is_far_tag or is_tag)(tag) then
        return nil, 'has a tag that is neither - nor a number up to 999999999'
      end
      if seen[tag] then return nil, 'has a tag twice' end
      tags[#tags + 1], seen[tag], known[tag] = tag, true, true
    end
    if table.concat(tags, ' ') ~= list then return nil, 'must have one blank between two tags' end
    if tags[1] ~= (far and '@-' or '-') and not (list == new and new == '') then
      return nil, 'must begin both lists with -'
    end
    if #tags > 256 then return nil, 'has more than 256 partitions' end
  end
  -- The whole queue is at the URL: this home only says so.
  known['-'] = known['-'] or old == '@-' and new == old
  return epoch_of, known
end
local form = ARGV[2]
local removes = form == 'remove' and slash ~= ''
local expects = form == 'change' or form == 'close'
local expected = (expects or removes) and tonumber(string.match(ARGV[3] or '', '^%d+$')) or nil
local map = ARGV[#ARGV]
if not (expected and #ARGV == (removes and 3 or 4) or form == 'forward' and #ARGV == 3) then
  return redis.error_reply('BADARGS remap takes now, change or close, expected epoch, map; or now, forward, map; '
    .. 'or, not at the home, now, remove, expected epoch')
end
local function messages()
  return redis.call('HLEN', MESSAGES) - redis.call('HEXISTS', MESSAGES, '\0' .. string.rep('-', 70))
end
if removes then
  redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
  if not layout then return {finish(false), 'DONE'} end
  if epoch ~= expected then return {finish(false), 'EPOCH ' .. int(epoch or 0)} end
  local on_the_way = tonumber(string.match(redis.call('HGET', META, 'moving') or '', '%d+$') or 0)
  local held = messages() + on_the_way
  if held > 0 then return {finish(false), 'HAS ' .. int(held)} end
  -- Another program's key is not deleted: its type differs.
  redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('ZCARD', DEAD); redis.call('ZCARD', RECENT)
  redis.call('ZCARD', NODES)
  local wake = base .. ':wake'
  redis.call('UNLINK', wake)
  for _, key in ipairs(KEYS) do
    redis.call('UNLINK', key)
  end
  layout = nil
  return {finish(false), 'DONE'}
end
local map_epoch, tags = read_map(map)
if not map_epoch or not tags[slash == '' and '-' or partition] then
  return redis.error_reply('BADARGS the map ' .. (map_epoch and 'must have the tag of this partition' or tags))
end
if expects and map_epoch <= expected then
  return redis.error_reply('BADARGS the epoch of the map must be larger than the expected one')
end
if expects or not layout then -- a right of operators: others are refused before the first write
  redis.call('HSTRLEN', META, 'layout')
end
local own, own_map = unpack(redis.call('HMGET', META, 'epoch', 'map'))
own = tonumber(own or 0) or 0
local alone = map == int(map_epoch) .. '|-|-' -- a queue of one partition: it needs no map
local has = own == map_epoch and layout and (alone and not epoch or own_map == map)
if has or not expects and own >= map_epoch then return {finish(false), 'DONE'} end
if expects and own ~= expected then return {finish(false), 'EPOCH ' .. int(own)} end
-- Schedules have no other place than a queue of one partition.
local schedules = expects and not alone and tonumber(redis.call('HGET', META, 'schedules') or '') or 0
if schedules > 0 then return {finish(false), 'HAS ' .. int(messages())} end
if form == 'change' then
  local held = messages()
  if held > 0 then return {finish(false), 'HAS ' .. int(held)} end
  local limit = int(now_up + REPEAT_MS + 1) -- what is beyond it is no memory: the clock went back
  -- How a message ended (a byte 6) is for `get` only: nothing waits for it. Of 10,000 such names the last one is taken.
  local last, from, page = 0, 0, nil
  repeat
    page = redis.call('ZRANGE', RECENT, limit, '(' .. now, 'BYSCORE', 'REV', 'LIMIT', from, '1000', 'WITHSCORES')
    from = from + 1000
    for i = 1, #page, 2 do
      if string.byte(page[i]) ~= 6 or from == 10000 and i == 1999 then
        last = tonumber(page[i + 1])
        break
      end
    end
  until last > 0 or #page < 2000
  -- Windows may end later. Beyond the longest window the clock went back.
  local windows_until = tonumber(redis.call('HGET', META, 'windows_until') or '') or 0
  last = math.max(last, windows_until <= now_up + 2592000000 and windows_until or 0)
  if last > now then return {finish(false), 'REMEMBERS ' .. int(math.ceil(last - now_us / 1000))} end
end
create()
if alone then
  redis.call('HDEL', META, 'map', 'mapped_ms')
  layout, epoch = layout and layout > '2' and layout or '1', nil
  redis.call('HSET', META, 'layout', layout, 'epoch', int(map_epoch))
else
  layout, epoch = layout and layout > '2' and layout or '2', map_epoch
  redis.call('HSET', META, 'layout', layout, 'epoch', int(map_epoch), 'map', map, 'mapped_ms', int(now_up))
end
redis.pcall('SPUBLISH', base .. ':notice', int(now)) -- nodes that park beat now, and learn the map
return {finish(true, true), 'DONE'}

#!lua flags=no-writes
-- peek: returns a page of the messages in one state, in the order of time_ms (as in get) or from the newest one on.
-- KEYS   the ten of the queue
-- ARGV   now | state: scheduled, ready, leased or dead
--        | cursor: empty for the first page, then as replied; or '<ms>:' for a page that begins at this time. Of ready
--        a number below 1,000,000 is no time but a place in the list, as replied
--        | limit: 1 to 1,000; a page has 256 at most | perhaps newest: the latest time first, and from a
--        time on earlier ones; or empty
-- Reply  {header, next cursor or empty at the end, {{id, time_ms, failures, crashes, error}, ...}}; of ready with five
--        arguments also the place in the list where the page begins. A leased item ends with lease, since
--        and to_bury, as in get.
--        A page may have fewer messages than limit: timers of schedules are skipped.
--        Between two pages, a message that enters or leaves may be missing; one that moves may be returned twice.
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE
-- Cost   O(log n + limit); of leased messages it looks at 2,000 granted ids at most: then the page is shorter. Of
--        ready ones with a time one scan of the list
-- Again  harmless

--- use: prelude
--- use: attrs
--- use: claim_marks
--- use: has_own_lease
--- use: lease_member
--- use: lease_name
--- use: since
--- use: to_bury
local state, cursor, limit, newest = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5] == 'newest'
local zset = ({scheduled = SCHEDULED, dead = DEAD})[state or '']
local time, last = string.match(cursor or '', '^(%d+):(.*)$')
if #ARGV ~= 4 and not (#ARGV == 5 and (newest or ARGV[5] == ''))
  or not (zset or state == 'ready' or state == 'leased') or not (cursor == '' or time)
  or not limit or limit < 1 or limit > 1000 or limit % 1 ~= 0 then
  return redis.error_reply('BADARGS peek takes now, state (scheduled, ready, leased or dead), cursor (as replied, '
    .. '<ms>: or empty), limit (1 to 1000), and perhaps newest')
end
limit = math.min(limit, 256)
local items, looked, more = {}, 0, false
local function add(id, at, claim, since)
  if string.byte(id) == 4 then return end -- a timer of a schedule
  local failures, crashes, _, _, reason = attrs_of(id)
  items[#items + 1] = {id, tonumber(at), failures, crashes, reason, claim and lease_name(claim), since,
    claim and (to_bury(claim) and 1 or 0)}
end
-- The rank at which a page begins: that of this member, or if it has moved, of the time that it had; and whether the
-- member is still there. Timers that wait for nothing are not among the newest.
local function page_start(zset, member)
  if not time then return newest and redis.call('ZCOUNT', zset, '-inf', '(' .. int(NEVER)) - 1 or 0, false end
  if tonumber(redis.call('ZSCORE', zset, member) or -1) == tonumber(time) then
    return redis.call('ZRANK', zset, member), true
  end
  if newest then return redis.call('ZCOUNT', zset, '-inf', time) - 1, false end
  return redis.call('ZCOUNT', zset, '-inf', '(' .. time), false
end
local function page_of(zset, start, count) -- {{member, score}, ...} in the order of the page
  local first, past = newest and math.max(0, start - count + 1) or start, {}
  if start < 0 then return past end
  local found = redis.call('ZRANGE', zset, first, newest and start or start + count - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    past[newest and (#found + 1 - i) / 2 or (i + 1) / 2] = {found[i], found[i + 1]}
  end
  return past
end
local function add_claim(token, at, after) -- the ids under the claim's lease, in the order in which it granted them
  local ids, record = {}, redis.call('HGET', CLAIMS, LEASE_MARK .. token) or ''
  local since = begun(record, at)
  for id in string.gmatch(record, '[^\n]+') do
    ids[#ids + 1] = id
  end
  for i = 1, #ids do
    local id = ids[newest and #ids + 1 - i or i]
    looked = looked + 1
    local claim = not after and #items < limit and redis.call('HGET', CLAIMS, id)
    if claim and string.find(claim, token, 1, true) == 1 and not has_own_lease(claim) then
      add(id, at, claim, since)
    end
    if id == after then
      after = nil
    end
  end
end
if state == 'leased' then
  local start, same = page_start(LEASES, lease_member(last or '', time and redis.call('HGET', CLAIMS, last) or '+'))
  for i, lease in ipairs(page_of(LEASES, start, limit + 1)) do
    local member, at, after = lease[1], lease[2], same and i == 1 and last or nil
    -- A claim may hold few of the ids that it granted. The page ends early, so that no call looks at too many.
    more = #items == limit or #items > 0 and looked >= 1000
    if more or at == 'inf' then break end
    if string.sub(member, 1, 1) == LEASE_MARK then
      add_claim(string.sub(member, 2), at, after)
    elseif member ~= after then
      add(member, at, redis.call('HGET', CLAIMS, member) or '',
        tonumber(redis.call('HGET', CLAIMS, SINCE_MARK .. member) or 0))
    end
  end
  cursor = (more or #items == limit) and int(math.ceil(items[#items][2])) .. ':' .. items[#items][1] or ''
elseif zset then
  local start, same = page_start(zset, last)
  if same then
    start = start + (newest and -1 or 1)
  end
  local page = page_of(zset, start, limit)
  for _, found in ipairs(page) do
    if found[2] ~= 'inf' then
      add(found[1], found[2])
    end
  end
  local final = page[limit]
  cursor = final and final[2] ~= 'inf' and int(math.ceil(final[2])) .. ':' .. final[1] or ''
else
  local start = newest and old_length - 1 or 1
  if time and #time < 7 then
    start = tonumber(time)
  elseif time then
    local list = redis.call('LRANGE', READY, 1, -1)
    start = newest and #list or 1
    while list[start] do
      local due = tonumber(string.match(list[start], '^%d+') or 0)
      if newest and due <= tonumber(time) or not newest and due >= tonumber(time) then break end
      start = start + (newest and -1 or 1)
    end
  end
  local first = newest and math.max(1, start - limit + 1) or start
  local page = start > 0 and redis.call('LRANGE', READY, first, newest and start or start + limit - 1) or {}
  for i = 1, #page do
    local at, id = string.match(page[newest and #page + 1 - i or i], '^(%d+):(.*)$')
    if id then
      add(id, at)
    end
  end
  cursor = #page == limit and int(newest and start - limit or start + limit) .. ':' or ''
  if #ARGV == 5 then return {finish(false, true), cursor, items, start} end
end
return {finish(false, true), cursor, items}

#!lua flags=no-writes
-- peek: returns a page of the messages in one state, in the order of time_ms (as in get).
-- KEYS   the ten of the queue
-- ARGV   now | state: scheduled, ready, leased or dead | cursor: empty for the first page, then as replied
--        | limit: 1 to 1,000
-- Reply  {header, next cursor or empty at the end, {{id, time_ms, failures, crashes, error}, ...}}
--        A page may have fewer messages than limit: timers of schedules are skipped.
--        Between two pages, a message that enters or leaves may be missing; one that moves may be returned twice.
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE
-- Cost   O(log n + limit); of leased messages it looks at 11,000 granted ids at most: then the page is shorter
-- Again  harmless

--- use: prelude
--- use: attrs
--- use: claim_marks
--- use: has_own_lease
--- use: lease_member
local state, cursor, limit = ARGV[2], ARGV[3], tonumber(ARGV[4])
local zset = ({scheduled = SCHEDULED, dead = DEAD})[state or '']
local time, last = string.match(cursor or '', '^(%d+):(.*)$')
if #ARGV ~= 4 or not (zset or state == 'ready' or state == 'leased') or not (cursor == '' or time)
  or not limit or limit < 1 or limit > 1000 or limit % 1 ~= 0 then
  return redis.error_reply('BADARGS peek takes now, state (scheduled, ready, leased or dead), cursor (as replied, or '
    .. 'empty), limit (1 to 1000)')
end
local items, start, looked, more = {}, 0, 0, false
local function add(id, at)
  if string.byte(id) == 4 then return end -- a timer of a schedule
  local failures, crashes, _, _, reason = attrs_of(id)
  items[#items + 1] = {id, tonumber(at), failures, crashes, reason}
end
local function page_start(zset, member) -- rank of this member, or if it has moved, of the time that it had
  if not time then return 0, false end
  local same = tonumber(redis.call('ZSCORE', zset, member) or -1) == tonumber(time)
  return same and redis.call('ZRANK', zset, member) or redis.call('ZCOUNT', zset, '-inf', '(' .. time), same
end
local function add_claim(token, at, after) -- the ids under the claim's lease, in the order in which it granted them
  for id in string.gmatch(redis.call('HGET', CLAIMS, LEASE_MARK .. token) or '', '[^\n]+') do
    looked = looked + 1
    local claim = not after and #items < limit and redis.call('HGET', CLAIMS, id)
    if claim and string.find(claim, token, 1, true) == 1 and not has_own_lease(claim) then
      add(id, at)
    end
    if id == after then
      after = nil
    end
  end
end
if state == 'leased' then
  local same
  start, same = page_start(LEASES, lease_member(last or '', time and redis.call('HGET', CLAIMS, last) or '+'))
  local page = redis.call('ZRANGE', LEASES, start, start + limit, 'WITHSCORES')
  for i = 1, #page, 2 do
    local member, at, after = page[i], page[i + 1], same and i == 1 and last or nil
    -- A claim may hold few of the ids that it granted. The page ends early, so that no call looks at too many.
    more = #items == limit or #items > 0 and looked >= 10000
    if more or at == 'inf' then break end
    if string.sub(member, 1, 1) == LEASE_MARK then
      add_claim(string.sub(member, 2), at, after)
    elseif member ~= after then
      add(member, at)
    end
  end
  cursor = (more or #items == limit) and int(items[#items][2]) .. ':' .. items[#items][1] or ''
elseif zset then
  local same
  start, same = page_start(zset, last)
  if same then
    start = start + 1
  end
  local page = redis.call('ZRANGE', zset, start, start + limit - 1, 'WITHSCORES')
  for i = 1, #page, 2 do
    if page[i + 1] ~= 'inf' then
      add(page[i], page[i + 1])
    end
  end
  local more = #page == 2 * limit and page[2 * limit] ~= 'inf'
  cursor = more and int(tonumber(page[2 * limit])) .. ':' .. page[2 * limit - 1] or ''
else
  start = time and tonumber(time) or 1
  local page = redis.call('LRANGE', READY, start, start + limit - 1)
  for _, found in ipairs(page) do
    local at, id = string.match(found, '^(%d+):(.*)$')
    if id then
      add(id, at)
    end
  end
  cursor = #page == limit and int(start + limit) .. ':' or ''
end
return {finish(false, true), cursor, items}

#!lua flags=no-writes
-- schedules: returns a page of the queue's schedules, in the order of their sets and names; or one of them.
-- KEYS   the ten of the queue
-- ARGV   now | cursor: empty for the first page, then as replied | limit: 1 to 1,000
--        | low: only crons whose list needs fires, or empty
--        now | name
-- Reply  {header, next cursor or empty at the end, {{name, state, next, last, since, made, missed, overlapped, paused,
--        triggered, version, spec, options, pattern, tzdata version, last listed fire, 1 if there are no more,
--        number of listed fires}, ...}}; with a name, which has no cursor, also the payload and the listed fires
--        state: active, paused, dry or ended
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE
-- Cost   O(limit + sets); it looks at 64 schedules at most: then the page is shorter, and has a next one
-- Again  harmless

--- use: prelude
local cursor, limit, low = ARGV[2], tonumber(ARGV[3] or 1), ARGV[4] == 'low'
if #ARGV ~= 2 and #ARGV ~= 4 or not limit or limit < 1 or limit > 1000 or limit % 1 ~= 0
  or #ARGV == 4 and not low and ARGV[4] ~= '' then
  return redis.error_reply('BADARGS schedules takes now, cursor (as replied, or empty), limit (1 to 1000), low or '
    .. 'empty; or now, name')
end
if (layout or '') < '4' then return {finish(false, true), '', {}} end
--- use: schedule_record
--- use: schedule_sets
local items, looked = {}, 0
local function add(s)
  local version, last, final = string.match(s.fires or '', '^(%S+) (%d+) (%d)\n')
  local list = version and open_list(s.fires)
  items[#items + 1] = {s.name, s.state, s.next, s.last, s.since, s.made, s.missed, s.overlapped, s.paused, s.triggered,
    int(s.version), s.spec, s.options, s.pattern, version or '', tonumber(last or 0), tonumber(final or 0),
    list and list.n or 0}
  return list and string.sub(s.fires, list.from) or ''
end
if #ARGV == 2 then
  local s = read_schedule(ARGV[2])
  if s then
    local list = add(s)
    items[1][19], items[1][20] = redis.call('HGET', MESSAGES, TIMER .. s.name) or '', list
  end
  return {finish(false, true), '', items}
end
local after_set, after_name = string.match(cursor, '^([^ ]+) ([^ ]+)$')
local last_looked
for _, name_of_set in ipairs(read_sets()) do
  if not after_set or name_of_set >= after_set then
    local set = read_set(name_of_set)
    local at = set.first
    if name_of_set == after_set then
      local start, found = find_listed(set, after_name)
      at = start + (found and #after_name + 1 or 0)
    end
    for name in string.gmatch(string.sub(set.text or '', at, at + 101 * 65), '[^\n]+') do
      if #items == limit or looked == 64 then return {finish(false, true), last_looked, items} end
      local s = read_schedule(name)
      if s and (not low or is_low(s)) then
        add(s)
      end
      looked, last_looked = looked + 1, name_of_set .. ' ' .. name
    end
  end
end
return {finish(false, true), '', items}

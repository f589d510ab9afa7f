#!lua
-- refill: adds fires to the lists of crons. A list that ran dry goes on, by the schedule's policy of missed fires.
-- KEYS   the ten of the queue
-- ARGV   now | per schedule, 1 to 100: name, version (of schedules), last listed fire as the caller knows it, fires.
--        All fires together have up to 65,536 bytes
--        fires: '<tzdata version> <1: there are no more, else 0>', LF, unix ms, ascending, with a blank between. They
--        are behind the last listed one and the last fire that is over; or, if the tzdata version is newer than the
--        list's, behind the last fire that is over: then they replace the list. A list holds 512
-- Reply  {header, {OK <listed> | KEPT | CHANGED | GONE | INVALID <why>, ...}}
--        CHANGED: another version, or another last listed fire; KEPT: an older tzdata version
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, OOM: nothing was written
-- Cost   O(fires)
-- Again  CHANGED

--- use: prelude
local count = (#ARGV - 1) / 4
local bytes = 0
for i = 5, #ARGV, 4 do
  bytes = bytes + #ARGV[i]
end
if count < 1 or count > 100 or count % 1 ~= 0 or bytes > 65536 then
  return redis.error_reply('BADARGS refill takes now, then name, version, last listed fire, fires for 1 to 100 '
    .. 'schedules; all fires together have at most 65536 bytes')
end
if (layout or '') > '3' then -- writes nothing; producers, who have not this right, are refused before a write
  redis.call('HSETNX', MESSAGES, '\0' .. string.rep('-', 70), '')
end
redis.call('HLEN', MESSAGES)
--- use: schedule_record
--- use: judge_fires
--- use: pop_fires
--- use: pop_paused
local function refilled(name, version, last_listed, text)
  local s = read_schedule(name)
  if not s then return 'GONE' end
  if s.every then return 'INVALID the schedule needs no list' end
  local tz, last = string.match(s.fires, '^(%S+) (%d+)')
  if int(s.version) ~= version or last ~= last_listed then return 'CHANGED' end
  local fires = judge_fires(text)
  if not fires then return 'INVALID ' .. fires_form end
  local new_tz, new_last, final = string.match(fires, '^(%S+) (%d+) (%d)')
  if new_tz < tz then return 'KEPT' end
  local more, list = string.sub(fires, open_list(fires).from), string.sub(s.fires, open_list(s.fires).from)
  local first = tonumber(string.match(more, '^%d+') or 'inf')
  if new_tz > tz then -- the rules of the zone changed
    list = ''
  elseif first <= tonumber(last) then
    return 'INVALID fires must be after ' .. last .. ', the last listed one'
  end
  if first <= s.last then return 'INVALID fires must be after ' .. int(s.last) .. ', the last one that is over' end
  local was_low, was_dry, waits = is_low(s), s.state == 'dry', int(due_of_timer(s))
  last = more ~= '' and new_last or new_tz > tz and int(s.last) or last
  s.fires = new_tz .. ' ' .. last .. ' ' .. final .. '\n' .. list .. (list ~= '' and more ~= '' and ' ' or '') .. more
  if open_list(s.fires).n > 512 then return 'INVALID a list holds at most 512 fires' end
  pop_fires(s, (spec_ms(s, 'start') or 0) - 1)
  first = fire_at(open_list(s.fires), 1)
  first = first <= s.last_fire and first < math.huge and first or 0
  if s.made + s.missed + s.overlapped + s.paused == 0 then -- newer rules may have another first fire
    s.since = first
  end
  if s.state == 'paused' then
    s.next = first
  else
    pop_paused(s)
  end
  move_on(s)
  count_lists(s, was_low, was_dry)
  write_schedule(s)
  if int(due_of_timer(s)) ~= waits then -- an entry of READY finds out by itself
    redis.call('ZADD', SCHEDULED, 'XX', int(due_of_timer(s)), TIMER .. s.name)
  end
  return 'OK ' .. int(open_list(s.fires).n)
end
local replies, changed = {}, false
for i = 1, count do
  replies[i] = refilled(unpack(ARGV, 4 * i - 2, 4 * i + 1))
  changed = changed or string.byte(replies[i]) == 79
end
return {finish(changed), replies}

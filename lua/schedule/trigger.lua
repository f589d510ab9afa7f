#!lua
-- trigger: makes ticks of a schedule by hand, without a change of its next fire: one now, or those of past fires.
-- KEYS   the ten of the queue
-- ARGV   now | name | now
--        now | name | nominal times, 1 to 100: unix ms that are not ahead, each once
--        A tick that is made now obeys the schedule's overlap. Ticks of past fires do not.
-- Reply  {header, {CREATED <id> | EXISTS <id> | OVERLAPS | INVALID <why>, ...}}
--        GONE instead of the list: no schedule, or its payload is lost
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, OOM: nothing was written
-- Cost   O(log n) a tick
-- Again  with times EXISTS; else one more tick

--- use: prelude
local name, is_now = ARGV[2], ARGV[3] == 'now'
if #ARGV < 3 or #ARGV > 102 or is_now and #ARGV ~= 3 then
  return redis.error_reply('BADARGS trigger takes now, name of a schedule, then now, or 1 to 100 unix ms')
end
local times = is_now and {int(now)} or {unpack(ARGV, 3)}
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
redis.call('HLEN', MESSAGES); redis.call('HLEN', ATTRS); redis.call('HLEN', CLAIMS); redis.call('ZCARD', DEAD)
redis.call('ZCARD', RECENT)
--- use: recent_marks
--- use: schedule_record
local s = read_schedule(name)
if s then
  s.payload = redis.call('HGET', MESSAGES, TIMER .. name)
end
-- A schedule that lost its payload: the next call of schedule stores it again.
if not s or not s.payload then return {finish(false), 'GONE'} end
local replies, made = {}, 0
local live = {}
if s.overlap ~= 'allow' then
  --- use: live_ticks
end
for i, time in ipairs(times) do
  local nominal = #time <= 15 and string.find(time, '^%d+$') and tonumber(time)
  local id = nominal and s.name .. '@' .. int(nominal)
  if not nominal or nominal > now then
    replies[i] = 'INVALID time must be unix ms that are not ahead'
  elseif redis.call('HEXISTS', MESSAGES, id) == 1 then
    replies[i] = 'EXISTS ' .. id
  elseif is_now and s.overlap == 'skip' and #live > 0 then
    replies[i] = 'OVERLAPS'
  elseif s.overlap ~= 'allow' and select(2, string.gsub(s.live, '%d+', '')) >= 1000 then
    replies[i] = 'INVALID 1000 ticks of this schedule wait or are leased'
  else
    if is_now and s.overlap == 'replace' then
      local ids = live
      --- use: remove_waiting
    end
    --- use: make_tick
    local cancelled = tonumber(redis.call('ZSCORE', RECENT, id) or 0)
    if cancelled > now and cancelled % 1 == CANCELLED then -- a repeated cancel must not take the new tick
      redis.call('ZADD', RECENT, string.format('%.2f', math.floor(cancelled) + PUSHED_AGAIN), id)
    end
    replies[i], made = 'CREATED ' .. id, made + 1
  end
end
if made > 0 then
  s.triggered = s.triggered + made
  write_schedule(s)
end
return {finish(made > 0), replies}

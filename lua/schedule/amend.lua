#!lua flags=allow-oom
-- amend: pauses, resumes or removes schedules. Ticks that they made stay. A paused schedule makes no ticks; its fires
--        until the resume count as paused.
-- KEYS   the ten of the queue
-- ARGV   now | pause, resume or remove | per schedule, 1 to 48: name
-- Reply  {header, {OK <next> | GONE, ...}}; next: 0 if it does not fire now
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(schedules log n); if timers are ready, one scan of the ready list
-- Again  the same; of remove GONE

--- use: prelude
local change = ARGV[2]
if #ARGV < 3 or #ARGV > 50 or change ~= 'pause' and change ~= 'resume' and change ~= 'remove' then
  return redis.error_reply('BADARGS amend takes now, pause, resume or remove, then 1 to 48 names of schedules')
end
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
redis.call('HLEN', MESSAGES)
--- use: schedule_record
--- use: schedule_sets
--- use: place_timer
--- use: change_set
--- use: pop_paused
local replies, changed, gone = {}, false, {}
local function resume(s) -- counts the fires since the pause
  local was_low = is_low(s)
  s.state, s.resumed = 'active', now
  if s.every then
    local over = math.floor((math.min(now, s.last_fire) - s.next) / s.every) + 1
    if over > 0 then -- else `next` stays: the fire before it may be one before the start, or even before 1970
      s.last, s.paused = s.next + (over - 1) * s.every, s.paused + over
      move_on(s)
    end
  else
    pop_paused(s)
    move_on(s)
  end
  count_lists(s, was_low, false)
end
for i = 3, #ARGV do
  local s = read_schedule(ARGV[i])
  if not s then
    replies[i - 2] = 'GONE'
  elseif change == 'remove' then
    local set = string.match(s.spec, 'set=(%S+)')
    gone[set] = gone[set] or {}
    table.insert(gone[set], s.name)
    remove_schedule(s)
    replies[i - 2], changed = 'OK 0', true
  else
    local before = s.state
    if change == 'pause' and (before == 'active' or before == 'dry') then
      local was_low = is_low(s)
      s.state = 'paused'
      count_lists(s, was_low, before == 'dry')
    elseif change == 'resume' and before == 'paused' then
      resume(s)
    end
    if s.state ~= before then
      write_schedule(s)
      place_timer(s, s)
      changed = true
    end
    replies[i - 2] = 'OK ' .. int(s.state == 'active' and s.next or 0)
  end
end
for name, names in pairs(gone) do
  change_set(read_set(name), {}, names)
end
leave_ready(promoted)
return {finish(changed), replies}

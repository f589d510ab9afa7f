-- A schedule is a field `schedule:NAME` of META, a timer in SCHEDULED or READY (a byte 4 and the name), and the payload
-- of its ticks in MESSAGES under the same member. A cron's next fires are in the field `fires:NAME` of META.
--   schedule:NAME  '<state> <next> <last> <since> <made> <missed> <overlapped> <paused> <triggered> <resumed>
--                  <version>', LF, nominal times of ticks that may be alive, LF, spec words, LF, options of ticks, LF,
--                  pattern
--   fires:NAME     '<tzdata version> <last listed> <1: there are no more>', LF, fires in ms
-- A timer that waits for nothing (paused, dry, ended) stands at NEVER, so that lengths count each member of MESSAGES.
local TIMER = '\4'
local function spec_ms(s, name) return tonumber(string.match(s.spec, name .. '=(%d+)') or '') end
local function parse_schedule(name, text, fires)
  local s = {name = name, fires = fires}
  local numbers
  s.state, numbers, s.live, s.spec, s.options, s.pattern =
    string.match(text, '^(%a+) ([%d ]+)\n([%d ]*)\n([^\n]*)\n([^\n]*)\n(.*)$')
  if not s.state then return nil end
  local at = 0
  local names = {'next', 'last', 'since', 'made', 'missed', 'overlapped', 'paused', 'triggered', 'resumed', 'version'}
  for number in string.gmatch(numbers, '%d+') do
    at = at + 1
    s[names[at] or ''] = tonumber(number)
  end
  if at ~= #names then return nil end
  if string.find(s.spec, ' zone=', 1, true) and not string.find(fires or '', '^%S+ %d+ [01]\n[%d ]*$') then
    s.fires = '0 0 0\n' -- the list is lost: a refill brings another
  end
  s.every, s.last_fire, s.limit = spec_ms(s, 'every'), spec_ms(s, 'end') or math.huge, spec_ms(s, 'limit') or math.huge
  s.jitter, s.overlap = spec_ms(s, 'jitter') or 0, string.match(s.spec, 'overlap=(%a+)') or 'allow'
  return s
end
local function read_schedule(name)
  local text, fires = unpack(redis.call('HMGET', META, 'schedule:' .. name, 'fires:' .. name))
  return text and parse_schedule(name, text, fires)
end
local function write_schedule(s)
  local numbers = string.format('%s' .. string.rep(' %.0f', 10), s.state, s.next, s.last, s.since,
    s.made, s.missed, s.overlapped, s.paused, s.triggered, s.resumed, s.version)
  local text = numbers .. '\n' .. s.live .. '\n' .. s.spec .. '\n' .. s.options .. '\n' .. s.pattern
  if s.every then
    redis.call('HSET', META, 'schedule:' .. s.name, text)
  else
    redis.call('HSET', META, 'schedule:' .. s.name, text, 'fires:' .. s.name, s.fires)
  end
end
-- A tick is due its nominal time plus a jitter, which all callers compute alike.
local function due_of_tick(s, nominal)
  if s.jitter == 0 then return nominal end
  return nominal + tonumber(string.sub(redis.sha1hex(s.name .. '@' .. int(nominal)), 1, 8), 16) % s.jitter
end
local function due_of_timer(s) return s.state == 'active' and due_of_tick(s, s.next) or NEVER end
-- Sets the next fire after s.last: of `every` by arithmetic, of a cron from what is left of its list.
local function move_on(s)
  if s.state == 'paused' then return end
  local nominal
  if s.every then
    nominal = s.last + s.every
  else
    nominal = tonumber(string.match(s.fires, '\n(%d+)'))
  end
  if s.made >= s.limit or (nominal or 0) > s.last_fire or not nominal and string.find(s.fires, '^%S+ %d+ 1\n') then
    s.state, s.next = 'ended', 0
  elseif nominal then
    s.state, s.next = 'active', nominal
  else
    s.state, s.next = 'dry', 0
  end
end
-- Whether a list of fires needs more soon, and META's counts of such lists and of dry ones.
local LOW = 256
local function is_low(s)
  if s.every or s.state == 'ended' or string.find(s.fires, '^%S+ %d+ 1\n') then return false end
  return #string.match(s.fires, '\n(.*)$') < LOW * 14 - 1 -- of 13 digits and a blank
end
local function count_lists(s, was_low, was_dry)
  local low, dry = s and is_low(s) or false, s and s.state == 'dry' or false
  if low ~= was_low then
    redis.call('HINCRBY', META, 'low_lists', low and 1 or -1)
  end
  if dry ~= was_dry then
    redis.call('HINCRBY', META, 'dry_lists', dry and 1 or -1)
  end
end

-- A schedule is a field `schedule:NAME` of META, a timer in SCHEDULED or READY (a byte 4 and the name), and the payload
-- of its ticks in MESSAGES under the same member. A cron's next fires are in the field `fires:NAME` of META.
--   schedule:NAME  '<state> <next> <last> <since> <made> <missed> <overlapped> <paused> <triggered> <resumed>
--                  <version>', LF, nominal times of ticks that may be alive, LF, spec words, LF, options of ticks, LF,
--                  pattern
--   fires:NAME     '<tzdata version> <last listed> <1: there are no more>', LF, fires in ms
-- A timer that waits for nothing (paused, dry, ended) stands at NEVER, so that lengths count each member of MESSAGES.
local TIMER = '\4'
local function spec_ms(s, name) return tonumber(s.words[name] or '') end
local function parse_schedule(name, text, fires)
  local s = {name = name, fires = fires, words = {}}
  s.state, s.next, s.last, s.since, s.made, s.missed, s.overlapped, s.paused, s.triggered, s.resumed, s.version, s.live,
    s.spec, s.options, s.pattern = string.match(text, '^(%a+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) '
    .. '(%d+)\n([%d ]*)\n([^\n]*)\n([^\n]*)\n(.*)$')
  if not s.state then return nil end
  s.next, s.last, s.since, s.made, s.missed = s.next + 0, s.last + 0, s.since + 0, s.made + 0, s.missed + 0
  s.overlapped, s.paused, s.triggered = s.overlapped + 0, s.paused + 0, s.triggered + 0
  s.resumed, s.version = s.resumed + 0, s.version + 0
  for word, value in string.gmatch(s.spec, '(%l+)=([^ ]+)') do
    s.words[word] = value
  end
  if s.words.zone and not string.find(fires or '', '^%S+ %d+ [01]\n%d*') then
    s.fires = '0 0 0\n' -- the list is lost: a refill brings another
  end
  s.every, s.last_fire, s.limit = spec_ms(s, 'every'), spec_ms(s, 'end') or math.huge, spec_ms(s, 'limit') or math.huge
  s.jitter, s.overlap = spec_ms(s, 'jitter') or 0, s.words.overlap or 'allow'
  return s
end
--- use: fire_list
local function read_schedule(name)
  local text, fires = unpack(redis.call('HMGET', META, 'schedule:' .. name, 'fires:' .. name))
  local s = text and parse_schedule(name, text, fires)
  if s then
    s.stored = fires
  end
  return s
end
local function write_schedule(s)
  -- %d costs a fifth of %.0f.
  local text = string.format('%s %d %d %d %d %d %d %d %d %d %d\n%s\n%s\n%s\n%s', s.state, s.next, s.last, s.since,
    s.made, s.missed, s.overlapped, s.paused, s.triggered, s.resumed, s.version, s.live, s.spec, s.options, s.pattern)
  if s.every or s.fires == s.stored then -- a list of 512 fires has 7 kB
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
  return #s.fires - string.find(s.fires, '\n', 1, true) < LOW * 14 - 1 -- of 13 digits and a blank
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

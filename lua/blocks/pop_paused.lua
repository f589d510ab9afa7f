-- Fires until the resume count as paused.
local head, list = string.match(s.fires, '^([^\n]*\n)(.*)$')
local time = tonumber(string.match(list, '^%d+') or 'inf')
while time <= math.min(s.resumed, s.last_fire) do
  s.last, s.paused = time, s.paused + 1
  list = string.gsub(list, '^%d+ ?', '')
  time = tonumber(string.match(list, '^%d+') or 'inf')
end
s.fires = head .. list

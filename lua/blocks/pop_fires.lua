local head, list = string.match(s.fires, '^([^\n]*\n)(.*)$')
while tonumber(string.match(list, '^%d+') or 'inf') <= before do
  list = string.gsub(list, '^%d+ ?', '')
end
s.fires = head .. list

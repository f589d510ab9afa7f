local function pop_fires(s, before) -- drops the fires that are at or before this time
  local list = open_list(s.fires)
  s.fires = drop_fires(list, count_until(list, before))
end

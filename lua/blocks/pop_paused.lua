local function pop_paused(s) -- fires until the resume count as paused
  local list = open_list(s.fires)
  local over = count_until(list, math.min(s.resumed, s.last_fire))
  if over > 0 then
    s.last, s.paused, s.fires = fire_at(list, over), s.paused + over, drop_fires(list, over)
  end
end

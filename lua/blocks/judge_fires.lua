local fires_form = "fires must be '<tzdata version> <0 or 1>', LF, and at most 512 unix ms, ascending"
local function judge_fires(text) -- as `fires:NAME` keeps them; or nil
  local version, final, list = string.match(text, '^([%w._+-]+) ([01])\n([%d ]*)$')
  if not version or #version > 32 then return nil end
  local last, times = 0, {}
  for time in string.gmatch(list, '%d+') do
    if #time > 15 or tonumber(time) <= last or #times == 512 then return nil end
    last, times[#times + 1] = tonumber(time), int(tonumber(time))
  end
  return version .. ' ' .. int(last) .. ' ' .. final .. '\n' .. table.concat(times, ' ')
end

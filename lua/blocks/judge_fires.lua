local fires_form = "fires must be '<tzdata version> <0 or 1>', LF, and at most 512 unix ms, ascending"
local function judge_fires(text) -- as `fires:NAME` keeps them; or nil
  local version, final, list = string.match(text, '^([%w._+-]+) ([01])\n([%d ]*)$')
  if not version or #version > 32 then return nil end
  local last, count, bytes = '0', 0, -1
  for time in string.gmatch(list, '%d+') do -- compares texts: numbers of equal length have their order
    if #time > 15 or count == 512 or string.byte(time) == 48 or #time < #last or #time == #last and time <= last then
      return nil
    end
    last, count, bytes = time, count + 1, bytes + #time + 1
  end
  if #list ~= math.max(0, bytes) then -- more than a blank between two
    list = string.match(string.gsub(list, ' +', ' '), '^ ?(.-) ?$')
  end
  return version .. ' ' .. last .. ' ' .. final .. '\n' .. list
end

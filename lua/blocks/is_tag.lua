local function is_tag(text) -- whether it is the name of a partition: - or a number up to 999999999
  return text == '-' or text == '0' or #text <= 9 and string.find(text, '^[1-9]%d*$')
end

local function is_counter(text) -- whether HINCRBY can add to it
  return text == '0' or #text <= 16 and string.find(text, '^[1-9]%d*$')
end

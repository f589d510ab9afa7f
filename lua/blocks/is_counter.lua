local function is_counter(text) return text == '0' or #text <= 16 and string.find(text, '^[1-9]%d*$') end -- as HINCRBY goes on from it

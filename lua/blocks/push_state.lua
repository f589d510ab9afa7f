--- use: attrs
-- The messages are judged one by one; each sees what the earlier ones did.
--   due_of, due_text   by the text of a due: its ms, or false; its score
--   taken              by id: this call stored or moved it
--   p, d               how many elements payloads and dues have
--   options            by id: words to store in ATTRS
--   noted              ids by which a repetition of this call is recognised
--   call_mark_suffices  whether remembering the call says the same as remembering each of `noted`
local due_of, due_text, taken, options, p, d = {}, {}, {}, {}, 0, 0
local noted, call_mark_suffices = {}, not call_mark
replies, payloads, dues, memory, created, longest = {}, {}, {}, {}, 0, largest
head, length = nil, nil
local function remember(score, name)
  memory[#memory + 1] = score
  memory[#memory + 1] = name
end

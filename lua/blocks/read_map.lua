-- Reads a map EPOCH|OLD TAGS|NEW TAGS: its epoch, and its tags as a set. For other text nil and the reason.
local function read_map(text)
  local number, old, new = string.match(text, '^([1-9]%d*)|([^|]*)|([^|]*)$')
  local epoch_of, known = tonumber(number), {}
  if not number or #number > 16 or epoch_of >= 9007199254740992 then
    return nil, 'must be EPOCH|OLD TAGS|NEW TAGS, with an epoch of 1 to 9007199254740991'
  end
  for _, list in ipairs({old, new}) do
    local tags, seen = {}, {}
    for tag in string.gmatch(list, '[^ ]+') do
      if not is_tag(tag) then return nil, 'has a tag that is neither - nor a number up to 999999999' end
      if seen[tag] then return nil, 'has a tag twice' end
      tags[#tags + 1], seen[tag], known[tag] = tag, true, true
    end
    if table.concat(tags, ' ') ~= list then return nil, 'must have one blank between two tags' end
    if tags[1] ~= '-' and not (list == new and new == '') then return nil, 'must begin both lists with -' end
    if #tags > 256 then return nil, 'has more than 256 partitions' end
  end
  return epoch_of, known
end

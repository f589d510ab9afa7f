-- A 0 before the due in an id's claim says that a window remembers the id; release 0.1 reads the same due. Scripts
-- before version 19 of the library wrote a w behind the due instead.
local function has_window(claim) return string.find(claim, '^0%d', 17) or string.find(claim, 'w', 17, true) end

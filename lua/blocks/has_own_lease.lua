-- A claim has one lease for all that it granted: \1 and its token in leases. Beside it in claims are its ids, and under \2 and the
-- token how many of them it still holds. An id that was extended has a lease of its own, and a + at the end of its claim.
local function has_own_lease(claim) return string.byte(claim, -1) == 43 end

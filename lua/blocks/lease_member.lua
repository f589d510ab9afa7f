local function lease_member(id, claim) return has_own_lease(claim) and id or '\1' .. string.sub(claim, 1, 16) end -- in leases

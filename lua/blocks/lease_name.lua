-- Names the lease of an id's value in CLAIMS: the first 16 digits of the SHA-1 of its token, which tells no token; and
-- behind a blank the end of the node's id, if the token gives it.
local function lease_name(claim)
  local node = string.match(claim, '^@(%w%w%w%w%w%w%w)')
  return string.sub(redis.sha1hex(string.sub(claim, 1, 16)), 1, 16) .. (node and ' ' .. node or '')
end

#!lua flags=no-writes
-- held: returns what the lease of a claim still holds, for a client that lost the reply to the claim.
-- KEYS   the ten of the queue
-- ARGV   now | token: 16 bytes, that of the claim
-- Reply  {header, ready messages, lease deadline ms, {id, ...}, {payload, ...}, {details, ...}, max_attempts,
--        how many more the lease holds}
--        as the reply to a claim; details: one for each id. Deadline -1 and no ids: the lease holds nothing.
--        A delivery that was extended has a lease of its own, and is not among them.
--        At most 4 MiB of payload, or one message: the last number is not 0 if that cut the answer.
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE
-- Cost   O(granted + bytes)
-- Again  harmless

--- use: prelude
--- use: attrs
--- use: claim_marks
--- use: has_own_lease
local token = ARGV[2]
if #ARGV ~= 2 or #token ~= 16 then return redis.error_reply('BADARGS held takes now, token (16 bytes)') end
local max_attempts, largest = unpack(redis.call('HMGET', META, 'max_attempts', 'largest_payload_bytes'))
largest = tonumber(largest or 4096) or 16777216
local deadline = redis.call('ZSCORE', LEASES, LEASE_MARK .. token)
local ids, payloads, details, bytes, more = {}, {}, {}, 0, 0
local granted = {}
for id in string.gmatch(redis.call('HGET', CLAIMS, LEASE_MARK .. token) or '', '[^\n]+') do
  granted[#granted + 1] = id
end
for from = 1, #granted, 200 do
  local some = {unpack(granted, from, math.min(from + 199, #granted))}
  local claims = redis.call('HMGET', CLAIMS, unpack(some)) -- producers have no right to HMGET of claims
  local attrs = redis.call('HMGET', ATTRS, unpack(some))
  -- No payload is read in vain: at once if all fit whatever they are, else each after its length.
  local found = bytes + #some * largest <= 4194304 and redis.call('HMGET', MESSAGES, unpack(some))
  for i, id in ipairs(some) do
    local claim = claims[i]
    if claim and string.find(claim, token, 1, true) == 1 and not has_own_lease(claim) then
      local length, n = found and #(found[i] or '') or redis.call('HSTRLEN', MESSAGES, id), #ids + 1
      if more > 0 or n > 1 and bytes + length > 4194304 then
        more = more + 1
      else
        local failures, crashes, _, options = parse_attrs(attrs[i])
        if crashes > 0 then
          options = options .. (options == '' and '' or ' ') .. 'crashes=' .. int(crashes)
        end
        ids[n], bytes = id, bytes + length
        payloads[n] = (found or redis.call('HMGET', MESSAGES, id))[found and i or 1] or ''
        local due = string.match(claim, '^0*(%d+)', 17) or '0'
        details[n] = due .. ' ' .. int(failures + crashes + 1) .. ' ' .. options
      end
    end
  end
end
local ready = closed and 0 or math.max(0, old_length - 1)
return {finish(false, true), ready, tonumber(#ids > 0 and deadline or -1), ids, payloads, details,
  tonumber(max_attempts or 20), more}

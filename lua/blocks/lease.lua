-- The leases of claims, and the ids under them.

--- block: claim_marks
-- A claim has one lease for everything that it granted. First bytes of its names, before the token: LEASE_MARK of the
-- lease in LEASES and of the granted ids in CLAIMS; COUNT_MARK of the number of ids still under the lease, in CLAIMS.
-- SINCE_MARK, before an id: when the delivery of an extended message began, in CLAIMS. The audit of release 0.1 passes
-- over such a name.
local LEASE_MARK, COUNT_MARK, SINCE_MARK = '\1', '\2', '\0='

--- block: write_lease
-- Ids have no control bytes. The first line is no id: a byte 3 and the length of the lease. It goes into the first id
-- for a moment: behind the list it would copy the list, and cost a claim of 100 messages 1 % more.
local first_id = granted[1]
granted[1] = '\3' .. ARGV[4] .. '\n' .. first_id
claims[c + 1], claims[c + 2] = LEASE_MARK .. token, table.concat(granted, '\n')
granted[1] = first_id
claims[c + 3], claims[c + 4] = COUNT_MARK .. token, int(n)
redis.call('HSET', CLAIMS, unpack(claims, 1, c + 4))
redis.call('ZADD', LEASES, int(deadline), LEASE_MARK .. token)

--- block: has_own_lease
-- Extend gives an id a lease of its own. A + at the end of the id's claim says so.
local function has_own_lease(claim) return string.byte(claim, -1) == 43 end

--- block: lease_member
local function lease_member(id, claim) -- the member of LEASES that holds this id
  return has_own_lease(claim) and id or LEASE_MARK .. string.sub(claim, 1, 16)
end

--- block: since
-- When a delivery began, in ms; 0 if that is unknown: scripts before version 27 of the library claimed or extended it.
-- CLAIMS has it of an extended delivery, under SINCE_MARK and the id. Any other began when its claim's lease did.
local function begun(record, deadline) -- record: what CLAIMS has under LEASE_MARK and the token
  local lease_ms = string.match(record or '', '^\3(%d+)\n')
  return lease_ms and math.max(0, deadline - lease_ms) or 0
end

--- block: to_bury
-- Zeros before the due in an id's claim are flags: one for a window, two for a message that dies when this lease ends.
local function to_bury(claim) return string.find(claim, '^00%d', 17) ~= nil end

--- block: bury_marked
-- Ends the delivery of a message that an operator wants dead, if it is one.
--- use: to_bury
local buried = 0
local function bury_marked(id, claim, failures, crashes, options, reason)
  if not to_bury(claim) then return false end
  local why = 'buried when its lease ended' .. (reason ~= '' and ': ' .. reason or '')
  set_attrs(id, failures, crashes, nil, options, string.sub(why, 1, 1024))
  redis.call('ZADD', DEAD, now, id)
  buried = buried + 1
  return true
end

--- block: bury_any
-- Buries whatever has these ids: at once what waits, and what is leased when its lease ends.
--- use: away
--- use: state_of
--- use: ready_entry
--- use: remove_ready
--- use: to_bury
local unlisted = {}
for i = 1, count do
  local id = ARGV[3 * i - 1]
  local state = state_of(id)
  if state == 'leased' then
    local claim = redis.call('HGET', CLAIMS, id)
    if not to_bury(claim) then
      redis.call('HSET', CLAIMS, id, string.sub(claim, 1, 16) .. '00' .. string.sub(claim, 17))
      changed = changed + 1
    end
    replies[i] = 'MARKED'
  elseif state == 'scheduled' or state == 'ready' then
    if state == 'ready' then
      unlisted[ready_entry(id) or ''] = true
    end
    redis.call('ZREM', SCHEDULED, id)
    local failures, crashes, _, options = attrs_of(id)
    if note then
      note(id, 'bury', nil, nil, ARGV[3 * i + 1])
    end
    die(id, failures, crashes, options, ARGV[3 * i + 1])
    replies[i], changed = 'OK', changed + 1
  else
    local gone = state == 'absent' and away(id)
    replies[i] = gone == 'ABSENT' and 'GONE' or gone or 'DEAD'
  end
end
remove_ready(unlisted)

--- block: lease_name
-- Names the lease of an id's value in CLAIMS: the first 16 digits of the SHA-1 of its token, which tells no token; and
-- behind a blank the end of the node's id, if the token gives it.
local function lease_name(claim)
  local node = string.match(claim, '^@(%w%w%w%w%w%w%w)')
  return string.sub(redis.sha1hex(string.sub(claim, 1, 16)), 1, 16) .. (node and ' ' .. node or '')
end

--- block: refusal_of
-- Returns GONE or LOST; or nil, the id's value in CLAIMS and its original due time, if this token holds it.
local function refusal_of(id, token)
  if (string.byte(id) or 0) < 32 then return 'GONE' end -- the placeholder, a timer, the record of a claim: no message
  local claim = redis.call('HGET', CLAIMS, id)
  if claim and #token == 16 and string.sub(claim, 1, 16) == token then
    return nil, claim, tonumber(string.match(claim, '^%d+', 17)) or 0
  end
  return redis.call('HEXISTS', MESSAGES, id) == 1 and 'LOST' or 'GONE'
end

--- block: end_lease
local ended = {} -- how many ids left the lease of each claim
local function end_lease(id, claim) -- end_claims must follow
  redis.call('HDEL', CLAIMS, id)
  if has_own_lease(claim) then
    redis.call('HDEL', CLAIMS, SINCE_MARK .. id)
    redis.call('ZREM', LEASES, id)
  else
    local token = string.sub(claim, 1, 16)
    ended[token] = (ended[token] or 0) + 1
  end
end
local function end_claims()
  for token, count in pairs(ended) do
    release_from_claim(token, count)
  end
end

--- block: release_from_claim
-- Takes `count` ids from under the claim's lease. The lease ends with the last one.
local function release_from_claim(token, count)
  local held = tonumber(redis.call('HGET', CLAIMS, COUNT_MARK .. token))
  if held and held > count then
    redis.call('HSET', CLAIMS, COUNT_MARK .. token, held - count)
  elseif held then
    redis.call('HDEL', CLAIMS, LEASE_MARK .. token, COUNT_MARK .. token)
    redis.call('ZREM', LEASES, LEASE_MARK .. token)
  end
end

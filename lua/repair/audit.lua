#!lua flags=allow-oom
-- audit: checks that each id is in exactly one state, a bounded step at a time, and repairs it if asked. A step checks
--        and repairs in one call, so workers and producers may go on. Call `verify` first: it repairs what audit needs.
-- KEYS   the ten of the queue
-- ARGV   now | part: ready, leases, claims, messages, scheduled, dead or attrs
--        | cursor: 0 for the first step, then as replied | limit: 1 to 1,000, about how many entries a step looks at
--        | 1 to repair, else empty
-- Reply  {header, next cursor (0 at the end), looked at, {{kind, id, detail, 1 if repaired else 0}, ...}}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(limit log n), and one scan of the ready list and of the ids of each claim that has an entry of the step
-- Again  finds what was not repaired

--- use: prelude
--- use: attrs
--- use: is_counter
--- use: claim_marks
--- use: has_own_lease
--- use: release_from_claim
local function is_cursor(text) -- 64 bits at most: Redis refuses others
  return #text <= 20 and string.find(text, '^%d+$') and (#text < 20 or text <= '18446744073709551615')
end
local part, cursor, limit, repairs = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5] == '1'
local zset = ({scheduled = SCHEDULED, leases = LEASES, dead = DEAD})[part or '']
local hash = ({claims = CLAIMS, messages = MESSAGES, attrs = ATTRS})[part or '']
if #ARGV ~= 5 or not (zset or hash or part == 'ready') or not is_cursor(cursor)
  or not limit or limit < 1 or limit > 1000 or limit % 1 ~= 0 or not (repairs or ARGV[5] == '') then
  return redis.error_reply('BADARGS audit takes now, part (ready, leases, claims, messages, scheduled, dead or attrs), '
    .. 'cursor, limit (1 to 1000), 1 or empty')
end
redis.call('HSTRLEN', META, 'layout') -- a right of operators: others are refused before the first write
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES); redis.call('ZCARD', DEAD)
-- HINCRBY of a bad counter would stop a repair halfway: until verify has repaired that, audit only checks.
local sound = is_counter(seq or '0') and is_counter(redis.call('HGET', META, 'died') or '0')
repairs, seq, incarnation = repairs and layout and sound, sound and seq or '0', incarnation or ''
local placeholder, findings, repaired = '\0' .. string.rep('-', 70), {}, 0
local function found(kind, id, detail, repair)
  if repairs then
    repair()
    repaired = repaired + 1
  end
  findings[#findings + 1] = {kind, id, detail, repairs and 1 or 0}
end

local entries = {} -- by id: its entries in READY
for _, entry in ipairs(redis.call('LRANGE', READY, 0, -1)) do
  local id = string.match(entry, '^%d+:(.+)$')
  if id then
    entries[id] = entries[id] or {}
    table.insert(entries[id], entry)
  elseif part == 'ready' and entry ~= placeholder then
    found('entry', entry, '', function() redis.call('LREM', READY, -1, entry) end)
  end
end
local function readable(claim) return string.find(claim, '^%d+%a*%+?$', 17) end
local lists, sets = {}, {} -- by token: the ids that a claim granted, as text; as a set once another id asks for it
local function granted(token, id) -- whether this claim granted the id
  if sets[token] then return sets[token][id] end
  local ids = lists[token]
  if ids then
    sets[token] = {}
    for each in string.gmatch(ids, '[^\n]+') do
      sets[token][each] = true
    end
    return sets[token][id]
  end
  ids = redis.call('HGET', CLAIMS, LEASE_MARK .. token) or ''
  lists[token] = ids
  local length = #id -- a list of 1,000 ids is long: nothing copies it
  return string.find(ids, '\n' .. id .. '\n', 1, true) or ids == id or string.sub(ids, 1, length + 1) == id .. '\n'
    or string.sub(ids, -length - 1) == '\n' .. id
end
local function release(token, count) -- also forgets the list, which may have gone
  release_from_claim(token, count)
  lists[token], sets[token] = nil, nil
end
local function shared(id, claim) -- whether the id is under the lease of its claim
  return not has_own_lease(claim) and readable(claim) and granted(string.sub(claim, 1, 16), id)
end
local function leased(id)
  return shared(id, redis.call('HGET', CLAIMS, id) or '') or redis.call('ZSCORE', LEASES, id)
end
-- All states that an id is in; the first one is kept: a handler may have a leased message, an operator decides about a
-- dead one, and the due in SCHEDULED counts more than the one in READY.
local function states_of(id)
  local at = {leased(id) and 'leased' or nil}
  if redis.call('ZSCORE', DEAD, id) then
    at[#at + 1] = 'dead'
  end
  if redis.call('ZSCORE', SCHEDULED, id) then
    at[#at + 1] = 'scheduled'
  end
  for _ in ipairs(entries[id] or {}) do
    at[#at + 1] = 'ready'
  end
  return at
end
local function end_lease(id)
  local claim = redis.call('HGET', CLAIMS, id) or ''
  if shared(id, claim) then
    release(string.sub(claim, 1, 16), 1)
  end
  redis.call('ZREM', LEASES, id)
  redis.call('HDEL', CLAIMS, id, SINCE_MARK .. id)
end
-- Takes the id out of all states but `keep` (nil: out of all); of its ready entries, keeps the first.
local function remove_from_states_except(id, keep)
  if keep ~= 'leased' then
    end_lease(id)
  end
  if keep ~= 'dead' then
    redis.call('ZREM', DEAD, id)
  end
  if keep ~= 'scheduled' then
    redis.call('ZREM', SCHEDULED, id)
  end
  for i, entry in ipairs(entries[id] or {}) do
    if keep ~= 'ready' or i > 1 then
      redis.call('LREM', READY, -1, entry)
    end
  end
end
local function bury(id, why)
  local failures, crashes, _, options, reason = attrs_of(id)
  remove_from_states_except(id, 'dead')
  set_attrs(id, failures, crashes, nil, options, why .. (reason ~= '' and '; before that: ' .. reason or ''))
  redis.call('ZADD', DEAD, now, id)
  redis.call('HINCRBY', META, 'died', 1)
end
local function hex(name) -- the token in a name of CLAIMS or LEASES
  return (string.gsub(string.sub(name, 2), '.', function(c) return string.format('%02x', string.byte(c)) end))
end
local function has_payload(id) return redis.call('HEXISTS', MESSAGES, id) == 1 end
local function report_without_payload(id, at) -- an id in the state `at`; the repair takes it out of all states
  found('hollow', id, at, function()
    remove_from_states_except(id)
    redis.call('HDEL', ATTRS, id)
  end)
end
local UNKNOWN_MS = 60000 -- length of a lease whose end is unknown; its handler can extend it
-- Gives the id a lease of its own, if it has none; and a claim with an unused token, if its claim is not readable.
local function give_own_lease(id, claim)
  if not readable(claim) then
    claim = string.sub(redis.sha1hex(int(now_us) .. id), 1, 16) .. int(now)
  end
  redis.call('HSET', CLAIMS, id, has_own_lease(claim) and claim or claim .. '+')
  redis.call('ZADD', LEASES, 'NX', now_up + UNKNOWN_MS, id)
end
local function look_claim(name) -- whether a claim's lease, ids and count fit together
  local token, held = string.sub(name, 2), 0
  local lease = redis.call('ZSCORE', LEASES, LEASE_MARK .. token)
  local ids, count = unpack(redis.call('HMGET', CLAIMS, LEASE_MARK .. token, COUNT_MARK .. token))
  for id in string.gmatch(ids or '', '[^\n]+') do
    local claim = redis.call('HGET', CLAIMS, id)
    if claim and string.find(claim, token, 1, true) == 1 and not has_own_lease(claim) then
      held = held + 1
    end
  end
  if not (lease or ids or count) then return end -- it may have ended within this step
  if lease and held > 0 and count == int(held) then return end
  local counts = 'counts ' .. (count or 'nothing') .. ', holds ' .. int(held)
  found('claim', hex(name), not ids and 'no ids' or not lease and 'no lease' or counts, function()
    redis.call('HSET', CLAIMS, COUNT_MARK .. token, held)
    if held == 0 then
      release(token, 0)
    else
      redis.call('ZADD', LEASES, 'NX', now_up + UNKNOWN_MS, LEASE_MARK .. token)
    end
  end)
end

local function most_payloads() -- as many as are sure to fit into 4 MiB
  local largest = tonumber(redis.call('HGET', META, 'largest_payload_bytes') or 4096) or 16777216
  return math.max(1, math.floor(4194304 / largest))
end

-- How many entries of a hash a step reads, so that the lists of their claims have about 10,000 ids in all: each leased
-- id may need another list.
local function most_lists(entries)
  local leased, leases = redis.call('HLEN', CLAIMS), redis.call('ZCARD', LEASES)
  return leased > 10000 and math.max(1, math.floor(10000 * entries * leases / leased / leased)) or limit
end

--- use: next_mark
--- use: life_mark
--- use: departure_marks
--- use: state_of
--- use: land
--- use: audit_parts
local next_cursor, visited, looked = '0', {[placeholder] = true}, 0
if part == 'ready' then
  for id in pairs(entries) do
    looked = looked + 1
    if not has_payload(id) then
      report_without_payload(id, 'ready')
    end
  end
else
  local scan, step = {zset and 'ZSCAN' or 'HSCAN', zset or hash, cursor, 'COUNT', limit}, 2
  if part == 'messages' then
    scan[5] = math.min(limit, most_lists(redis.call('HLEN', MESSAGES)))
    if (redis.REDIS_VERSION_NUM or 0) >= 0x00070400 then
      scan[6], step = 'NOVALUES', 1
    else -- HSCAN returns the payloads too: limit them to a few megabytes
      scan[5] = math.min(scan[5], most_payloads())
    end
  elseif part == 'claims' then -- one claim may have granted a thousand ids
    scan[5] = math.min(math.ceil(limit / 10), most_lists(redis.call('HLEN', CLAIMS)))
  elseif part == 'attrs' and (layout or '') >= '3' then -- next messages are here, with their payloads
    scan[5] = math.min(limit, most_payloads())
  end
  local page = redis.call(unpack(scan))
  next_cursor = page[1]
  for i = 1, #page[2], step do
    local id = page[2][i]
    if not visited[id] then
      visited[id], looked = true, looked + 1
      look[part](id, page[2][i + 1])
    end
  end
end
return {finish(repaired > 0, not repairs), next_cursor, looked, findings}

#!lua flags=allow-oom
-- audit: looks whether each id is in exactly one state, a bounded step at a time, and mends what is not, if asked. A step decides
-- and mends in one call, so that workers and producers may go on. `verify` comes first: it looks at what holds the messages.
-- KEYS   the ten of the queue
-- ARGV   now | part: ready, leases, claims, messages, scheduled, dead or attrs | cursor: 0 for the first step, then as replied
--        limit: 1 to 1,000, about how many entries a step looks at | 1 to mend, else empty
-- Reply  {header, next cursor (0 at the end), looked at, {{kind, id, detail, 1 if mended else 0}, ...}}
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(limit log n), and one scan of the ready window
-- Again  finds what is left; what was mended is not found again

--- use: prelude
--- use: attrs
--- use: is_counter
--- use: has_own_lease
--- use: release_from_claim
local part, cursor, limit, repair = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5] == '1'
local zset = ({scheduled = SCHEDULED, leases = LEASES, dead = DEAD})[part or '']
local hash = ({claims = CLAIMS, messages = MESSAGES, attrs = ATTRS})[part or '']
if #ARGV ~= 5 or not (zset or hash or part == 'ready') or not string.find(cursor, '^%d+$') or not limit or limit < 1 or limit > 1000
  or limit % 1 ~= 0 or not (repair or ARGV[5] == '') then
  return redis.error_reply('BADARGS audit takes now, part (ready, leases, claims, messages, scheduled, dead or attrs), cursor, limit (1 to 1000), 1 or empty')
end
redis.call('HSTRLEN', META, 'layout') -- an operator's right: who lacks it is refused before anything is written
redis.call('HLEN', CLAIMS); redis.call('HLEN', ATTRS); redis.call('HLEN', MESSAGES); redis.call('ZCARD', DEAD)
-- A counter that cannot go on would stop it halfway: then it only looks, until verify has mended that.
local sound = is_counter(seq or '0') and is_counter(redis.call('HGET', META, 'died') or '0')
repair, seq, incarnation = repair and layout and sound, sound and seq or '0', incarnation or ''
local sentinel, findings, mended = '\0' .. string.rep('-', 70), {}, 0
local function found(kind, id, detail, mend)
  if repair then mend(); mended = mended + 1 end
  findings[#findings + 1] = {kind, id, detail, repair and 1 or 0}
end

local entries = {} -- of the ready, by id
for _, entry in ipairs(redis.call('LRANGE', READY, 0, -1)) do
  local id = string.match(entry, '^%d+:(.+)$')
  if id then entries[id] = entries[id] or {}; table.insert(entries[id], entry)
  elseif part == 'ready' and entry ~= sentinel then
    found('entry', entry, '', function() redis.call('LREM', READY, -1, entry) end)
  end
end
local function readable(claim) return string.find(claim, '^%d+%+?$', 17) end
local function shared(id, claim) -- whether it is under the lease of its claim
  local ids = not has_own_lease(claim) and readable(claim) and redis.call('HGET', CLAIMS, '\1' .. string.sub(claim, 1, 16))
  return ids and string.find('\n' .. ids .. '\n', '\n' .. id .. '\n', 1, true)
end
local function leased(id) return shared(id, redis.call('HGET', CLAIMS, id) or '') or redis.call('ZSCORE', LEASES, id) end
-- Who of two places is right: a handler that has it, then the dead, of whom an operator decides, then the due in scheduled.
local function places(id)
  local at = {leased(id) and 'leased' or nil}
  if redis.call('ZSCORE', DEAD, id) then at[#at + 1] = 'dead' end
  if redis.call('ZSCORE', SCHEDULED, id) then at[#at + 1] = 'scheduled' end
  for _ in ipairs(entries[id] or {}) do at[#at + 1] = 'ready' end
  return at
end
local function end_lease(id)
  local claim = redis.call('HGET', CLAIMS, id) or ''
  if shared(id, claim) then release_from_claim(string.sub(claim, 1, 16), 1) end
  redis.call('ZREM', LEASES, id)
  redis.call('HDEL', CLAIMS, id)
end
local function leave(id, keep) -- all places but this one, and of the ready but the first
  if keep ~= 'leased' then end_lease(id) end
  if keep ~= 'dead' then redis.call('ZREM', DEAD, id) end
  if keep ~= 'scheduled' then redis.call('ZREM', SCHEDULED, id) end
  for i, entry in ipairs(entries[id] or {}) do if keep ~= 'ready' or i > 1 then redis.call('LREM', READY, -1, entry) end end
end
local function bury(id, why)
  local failures, crashes, _, options, reason = attrs_of(id)
  leave(id, 'dead')
  set_attrs(id, failures, crashes, nil, options, why .. (reason ~= '' and '; before that: ' .. reason or ''))
  redis.call('ZADD', DEAD, now, id)
  redis.call('HINCRBY', META, 'died', 1)
end
local function hex(field) return (string.gsub(string.sub(field, 2), '.', function(c) return string.format('%02x', string.byte(c)) end)) end
local function payload(id) return redis.call('HEXISTS', MESSAGES, id) == 1 end
local function hollow(id, at) found('hollow', id, at, function() leave(id); redis.call('HDEL', ATTRS, id) end) end
local UNKNOWN_MS = 60000 -- until when a lease runs whose end is not known: its handler can extend it
local function lend(id, claim) -- a lease of its own, if it has none, and a claim that is nobody's, if it has none
  if not readable(claim) then claim = string.sub(redis.sha1hex(int(now_us) .. id), 1, 16) .. int(now) end
  redis.call('HSET', CLAIMS, id, has_own_lease(claim) and claim or claim .. '+')
  redis.call('ZADD', LEASES, 'NX', now_up + UNKNOWN_MS, id)
end
local function look_claim(name) -- whether what belongs to a claim's lease fits together
  local token, held = string.sub(name, 2), 0
  local lease, ids, count = redis.call('ZSCORE', LEASES, '\1' .. token), unpack(redis.call('HMGET', CLAIMS, '\1' .. token, '\2' .. token))
  for id in string.gmatch(ids or '', '[^\n]+') do
    local claim = redis.call('HGET', CLAIMS, id)
    if claim and string.find(claim, token, 1, true) == 1 and not has_own_lease(claim) then held = held + 1 end
  end
  if not (lease or ids or count) or lease and held > 0 and count == int(held) then return end -- it may have ended within this step
  local detail = not ids and 'no ids' or not lease and 'no lease' or 'counts ' .. (count or 'nothing') .. ', holds ' .. int(held)
  found('claim', hex(name), detail, function()
    redis.call('HSET', CLAIMS, '\2' .. token, held)
    if held == 0 then release_from_claim(token, 0) else redis.call('ZADD', LEASES, 'NX', now_up + UNKNOWN_MS, '\1' .. token) end
  end)
end

local look = {}
function look.leases(id, score)
  local deadline, claim = tonumber(score), redis.call('HGET', CLAIMS, id) or ''
  if string.byte(id) == 1 then
    if claim == '' then return look_claim(id) end
  elseif not payload(id) then return hollow(id, 'leased')
  elseif not readable(claim) then
    found('unclaimed', id, '', function() if #places(id) > 1 then end_lease(id) else lend(id, claim) end end) -- the one waits elsewhere
  elseif not has_own_lease(claim) then
    found('unmarked', id, '', function() if shared(id, claim) then redis.call('ZREM', LEASES, id) else lend(id, claim) end end)
  end
  if deadline < 0 or deadline > now_up + 86400000 then
    found('score', string.byte(id) == 1 and hex(id) or id, 'leased ' .. score, function() redis.call('ZADD', LEASES, 'XX', now_up + UNKNOWN_MS, id) end)
  end
end
function look.claims(id, claim)
  local kind, ids = string.byte(id) or 3, '\1' .. string.sub(id, 2)
  if kind == 2 and (redis.call('HEXISTS', CLAIMS, ids) == 1 or redis.call('ZSCORE', LEASES, ids)) then return end -- seen with those
  if kind < 3 then return look_claim(id) end
  if redis.call('ZSCORE', LEASES, id) then return end -- seen there
  if leased(id) then return payload(id) or hollow(id, 'leased') end
  local alone = payload(id) and #places(id) == 0
  found(alone and not readable(claim) and 'unclaimed' or 'unleased', id, '', function()
    if alone then lend(id, claim) else redis.call('HDEL', CLAIMS, id) end
  end)
end
function look.messages(id)
  local at = places(id)
  if #at > 1 then found('doubled', id, table.concat(at, ' '), function() leave(id, at[1]) end)
  elseif #at == 0 and redis.call('HEXISTS', CLAIMS, id) == 0 then
    found('unplaced', id, '', function() bury(id, 'audit: it was in no state, and may have been handled') end)
  end
end
function look.scheduled(id, score)
  local due = tonumber(score)
  if not payload(id) then return hollow(id, 'scheduled') end
  if due == math.huge then return found('score', id, 'scheduled inf', function() bury(id, 'audit: it was never due') end) end
  local function later() redis.call('ZADD', SCHEDULED, math.max(0, math.ceil(due)), id) end
  return due >= 0 and due % 1 == 0 or found('score', id, 'scheduled ' .. score, later)
end
function look.dead(id, score)
  if not payload(id) then return hollow(id, 'dead') end
  local is_time = tonumber(score) >= 0 and tonumber(score) < math.huge
  return is_time or found('score', id, 'dead ' .. score, function() redis.call('ZADD', DEAD, now, id) end)
end
function look.attrs(id, value)
  if not payload(id) or not (string.find(value, '^%d+ %d+ %d+ [^\n]*\n') or string.find(value, '^%d+ %d+ %- [^\n]*\n')) then
    found('attrs', id, payload(id) and '' or 'absent', function() redis.call('HDEL', ATTRS, id) end)
  end
end

local next_cursor, seen, looked = '0', {[sentinel] = true}, 0
if part == 'ready' then
  for id in pairs(entries) do looked = looked + 1; if not payload(id) then hollow(id, 'ready') end end
else
  local scan, step = {zset and 'ZSCAN' or 'HSCAN', zset or hash, cursor, 'COUNT', limit}, 2
  if part == 'messages' and (redis.REDIS_VERSION_NUM or 0) >= 0x00070400 then scan[6], step = 'NOVALUES', 1
  elseif part == 'messages' then -- payloads come along: a few megabytes of them
    local largest = tonumber(redis.call('HGET', META, 'largest_payload_bytes') or 4096) or 16777216
    scan[5] = math.min(limit, math.max(1, math.floor(4194304 / largest)))
  elseif part == 'claims' then scan[5] = math.ceil(limit / 10) -- one claim may have granted a thousand ids
  end
  local page = redis.call(unpack(scan))
  next_cursor = page[1]
  for i = 1, #page[2], step do
    local id = page[2][i]
    if not seen[id] then
      seen[id], looked = true, looked + 1
      look[part](id, page[2][i + 1])
    end
  end
end
return {finish(mended > 0, not repair), next_cursor, looked, findings}

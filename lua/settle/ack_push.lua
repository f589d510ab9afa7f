#!lua
-- ack_push: acks a delivery and stores the messages that follow it, all or nothing (leased -> absent; absent ->
--           scheduled). With a token that is not the current one nothing is stored.
-- KEYS   the ten of the queue
-- ARGV   now | token and id, joined | per message, 1 to 100: id, due, payload, options; as in push
-- Reply  {header, OK | GONE | LOST | REFUSED, {CREATED | EXISTS <state> | REMEMBERED <ms> | FULL <why> | INVALID <why>,
--        ...}}; REFUSED: a message is FULL, INVALID or MOVING: nothing was written, and the delivery is
--        still leased
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, OOM: nothing was written
-- Cost   O(log n) a message
-- Again  GONE; the messages are there

--- use: fenced_prelude
--- use: claim_marks
--- use: has_own_lease
--- use: release_from_claim
--- use: refusal_of
--- use: end_lease
--- use: recent_marks
--- use: outcomes
--- use: has_window
--- use: next_mark
--- use: due_ms
local token, parent = string.sub(ARGV[2] or '', 1, 16), string.sub(ARGV[2] or '', 17)
if #ARGV < 6 or #ARGV > 402 or #ARGV % 4 ~= 2 or #token ~= 16 or parent == '' then
  return redis.error_reply('BADARGS ack_push takes now, token and id joined, then id, due, payload, options for 1 to '
    .. '100 messages')
end
local attempt = ''
--- use: push_request
local function state_of(id) -- without ZSCORE, to which a consumer has no right
  if redis.call('HEXISTS', CLAIMS, id) == 1 then return 'leased' end
  if redis.call('ZMSCORE', SCHEDULED, id)[1] then return 'scheduled' end
  return redis.call('ZMSCORE', DEAD, id)[1] and 'dead' or 'ready'
end
local refusal, claim = refusal_of(parent, token)
if refusal then return {finish(false), refusal, {}} end
redis.call('HSETNX', MESSAGES, '\0' .. string.rep('-', 70), '') -- consumers of an older release have no right to it
local windowed = has_window(claim) and outcomes_of({parent}, 0) or {}
if (layout or '') < '3' or redis.call('HEXISTS', ATTRS, NEXT_MARK .. parent) == 0 then
  room = room + 1 -- of the delivery; a next message takes it
end
local verb, move, follow, create_queue = 'ack_push', nil, nil, nil -- it moves no message, and the queue exists
--- use: push_state
--- use: read_options
--- use: judge_each
for i, reply in ipairs(replies) do
  if ids[i] == parent then
    reply = 'INVALID a message that follows a delivery needs another id'
    replies[i] = reply
  end
  if string.find(reply, '^INVALID') or string.find(reply, '^FULL') or reply == 'MOVING' then
    refusal = 'REFUSED'
  end
end
if refusal then return {finish(false), refusal, replies} end
if end_lives then
  local attempt_of
  --- use: attempt_of
  end_lives({parent}, 'ack_push', function(id) return attempt_of(id, claim) end)
end
end_lease(parent, claim)
redis.call('HDEL', MESSAGES, parent)
redis.call('HDEL', ATTRS, parent)
redis.call('HINCRBY', META, 'acked', 1)
--- use: next
start_next(parent)
for i = 1, p, 2 do
  redis.call('HSETNX', MESSAGES, payloads[i], payloads[i + 1])
end
payloads = {}
--- use: store_each
for i = 1, #windowed do
  memory[#memory + 1] = windowed[i]
end
--- use: push_end
end_claims()
return {finish(true), 'OK', replies}

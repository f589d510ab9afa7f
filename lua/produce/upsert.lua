#!lua
-- upsert: stores new messages, and moves or replaces waiting ones (absent, scheduled or ready -> scheduled; with revive
--         dead -> scheduled, too).
-- KEYS   the ten of the queue; upsert makes them if they do not exist
-- ARGV   as push. options: those of push, but on_conflict=reschedule|replace|next, which each message needs
--        reschedule: a waiting message gets the new due; replace: also the new payload and options, and no attempts;
--        next: as replace, and of a leased message it is kept for when the delivery ends (layout 3)
--        max_wait=MS: no later push gives the message a due beyond the first one + MS; revive: replaces a dead message
-- Reply  {header, {CREATED | MOVED | NEXT | REMEMBERED <ms> | EXISTS <state> | FINISHED | FINISHED <ms> | EXPIRED |
--        FULL <why> | INVALID <why> | MOVING | AWAY | AWAY <what it remembers>, ...}}; EXISTS: it is leased or dead,
--        and stays as it is
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, OOM: nothing was written
-- Cost   O(log n) a message, and one scan of the ready list if a ready message is moved
-- Again  with the same attempt: a message that still waits is moved again; otherwise as push

--- use: fenced_prelude
--- use: recent_marks
--- use: create
--- use: due_ms
--- use: ready_entry
--- use: remove_ready
local attempt = ARGV[2] or ''
--- use: push_request
--- use: state_of
--- use: push_state
--- use: fresh_options
local verb, create_queue, unlisted, rescheduled, moved_near, revived = 'upsert', create, {}, {}, false, {}
local function ends_by(words, by) -- with this end of the debounce
  words = string.gsub(string.gsub(words, ' ?due_by=%d+', ''), '^ ', '')
  return words .. (words == '' and '' or ' ') .. by
end
local function move(id, state, due, payload, asked) -- returns the due that the message gets, as text
  if state == 'ready' then
    unlisted[ready_entry(id) or ''] = true
  elseif state == 'dead' then
    revived[#revived + 1] = id
  end
  local failures, crashes, _, words = attrs_of(id)
  if options[id] then -- an earlier item of this call stored the message
    failures, crashes, words, state = 0, 0, options[id], 'scheduled'
  end
  local by = string.match(rescheduled[id] or words, 'due_by=%d+') or string.match(words, 'due_by=%d+')
  local has_run = failures + crashes > 0 or state == 'dead' or string.find(words, 'snoozes=', 1, true)
  if by and not has_run then -- the first push of a debounce says when it ends
    due = math.min(due, tonumber(string.sub(by, 8)))
  end
  if asked.on_conflict == 'reschedule' then
    -- The first push with a max_wait may find a message without one.
    rescheduled[id] = not by and not has_run and asked.due_by and 'due_by=' .. asked.due_by or rescheduled[id] or ''
  else
    local stored = by and not has_run and ends_by(asked.stored, by) or asked.stored
    rescheduled[id] = nil
    p, payloads[p + 1], payloads[p + 2], options[id] = p + 2, id, payload, stored
    longest = math.max(longest, #payload)
  end
  if due - now <= REPEAT_MS then
    moved_near = true
    remember(string.format('%.3f', now_us / 1000 + REPEAT_MS), ENDED_MARK .. id)
  end
  return int(due)
end
--- use: next_mark
local following = {}
local function follow(id, due, payload, stored) -- keeps the message for after the delivery that runs; the last one wins
  local kept = following[id] or redis.call('HGET', ATTRS, NEXT_MARK .. id) or ''
  local by = string.match(string.match(kept, '^[^\n]*'), 'due_by=%d+')
  if by then
    due, stored = math.min(due, tonumber(string.sub(by, 8))), ends_by(stored, by)
  end
  following[id] = int(due) .. ' ' .. stored .. '\n' .. payload
  longest = math.max(longest, #payload)
end
--- use: read_options
--- use: push_each
remove_ready(unlisted)
if #revived > 0 then
  redis.call('ZREM', DEAD, unpack(revived))
end
for id, message in pairs(following) do
  redis.call('HSET', ATTRS, NEXT_MARK .. id, message)
  if layout > '4' then
    redis.call('HSET', META, 'nexts', '1') -- ack looks for them
  end
  if string.find(message, '^%d+ [^\n]*expires=') then -- claim looks for messages that have expired
    redis.call('HSET', META, 'expiring', '1', 'selective', '1')
  end
  changed = true
end
for id, by in pairs(rescheduled) do -- only the new due counts from now on
  local failures, crashes, _, stored, reason = attrs_of(id)
  set_attrs(id, failures, crashes, nil, by ~= '' and ends_by(free_expiry(stored), by) or free_expiry(stored), reason)
end
ended_until = ended_until or '0'
if moved_near and string.find(ended_until, '^%d+$') and now_up + REPEAT_MS + 1 > tonumber(ended_until) then
  redis.call('HINCRBY', META, 'ended_until', int(now_up + REPEAT_MS + 1 - tonumber(ended_until)))
end
--- use: push_end
return {finish(changed, false, head, length), replies}

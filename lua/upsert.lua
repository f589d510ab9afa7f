#!lua
-- upsert: stores new messages, and moves or replaces waiting ones (absent, scheduled or ready -> scheduled; with revive
--         dead -> scheduled, too).
-- KEYS   the ten of the queue; upsert makes them if they do not exist
-- ARGV   as push. options: those of push, but on_conflict=reschedule|replace|next, which each message needs
--        reschedule: a waiting message gets the new due; replace: also the new payload and options, and no attempts;
--        next: as replace, and of a leased message it is kept for when the delivery ends (layout 3)
--        max_wait=MS: no later push gives the message a due beyond the first one + MS; revive: replaces a dead message
-- Reply  {header, {CREATED | MOVED | NEXT | REMEMBERED <ms> | EXISTS <state> | FINISHED | FINISHED <ms> | EXPIRED |
--        FULL <why> | INVALID <why>, ...}}; EXISTS: it is leased or dead, and stays as it is
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
local create_queue, unlisted, rescheduled, moved_near, revived = create, {}, {}, false, {}
local function move(id, state, due, payload, asked) -- returns the due that the message gets, as text
  if state == 'ready' then
    unlisted[ready_entry(id) or ''] = true
  elseif state == 'dead' then
    revived[#revived + 1] = id
  end
  local failures, crashes, _, words = attrs_of(id)
  local by = options[id] and string.match(options[id], 'due_by=%d+') or string.match(words, 'due_by=%d+')
  local has_run = failures + crashes > 0 or state == 'dead' or string.find(words, 'snoozes=', 1, true)
  if by and not has_run then -- the first push of a debounce says when it ends
    due = math.min(due, tonumber(string.sub(by, 8)))
  end
  if asked.on_conflict == 'reschedule' then
    rescheduled[id] = true
  else
    local stored = asked.stored
    if by and not has_run then
      stored = string.gsub(stored, ' ?due_by=%d+', '')
      stored = stored .. (stored == '' and '' or ' ') .. by
    end
    p, payloads[p + 1], payloads[p + 2], options[id] = p + 2, id, payload, stored
    longest = math.max(longest, #payload)
  end
  if due - now <= REPEAT_MS then
    moved_near = true
    remember(string.format('%.3f', now_us / 1000 + REPEAT_MS), ENDED_MARK .. id)
  end
  return int(due)
end
local following = {}
local function follow(id, due, payload, stored) -- keeps the message for after the delivery that runs; the last one wins
  following[id] = int(due) .. ' ' .. stored .. '\n' .. payload
  longest = math.max(longest, #payload)
end
--- use: push_each
remove_ready(unlisted)
if #revived > 0 then
  redis.call('ZREM', DEAD, unpack(revived))
end
--- use: next_mark
for id, message in pairs(following) do
  redis.call('HSET', ATTRS, NEXT_MARK .. id, message)
  changed = true
end
for id in pairs(rescheduled) do -- only the new due counts from now on
  local failures, crashes, _, stored, reason = attrs_of(id)
  set_attrs(id, failures, crashes, nil, free_expiry(stored), reason)
end
ended_until = ended_until or '0'
if moved_near and string.find(ended_until, '^%d+$') and now_up + REPEAT_MS + 1 > tonumber(ended_until) then
  redis.call('HINCRBY', META, 'ended_until', int(now_up + REPEAT_MS + 1 - tonumber(ended_until)))
end
--- use: push_end
return {finish(changed, false, head, old_deadline, length), replies}

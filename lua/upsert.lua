#!lua
-- upsert: stores new messages, and moves or replaces waiting ones (absent, scheduled or ready -> scheduled).
-- KEYS   the ten of the queue; upsert makes them if they do not exist
-- ARGV   as push. options: those of push, but on_conflict=reschedule|replace, which each message needs
--        reschedule: a waiting message gets the new due; replace: also the new payload and options, and no attempts
-- Reply  {header, {CREATED | MOVED | EXISTS <state> | FINISHED | FINISHED <ms> | EXPIRED | FULL <why> | INVALID <why>,
--        ...}}; EXISTS: it is leased or dead, and stays as it is
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, OOM: nothing was written
-- Cost   O(log n) a message, and one scan of the ready list if a ready message is moved
-- Again  with the same attempt: a message that still waits is moved again; otherwise as push

--- use: fenced_prelude
--- use: recent_marks
--- use: create
--- use: due_ms
--- use: ready_entry
--- use: remove_ready
--- use: push_request
--- use: push_state
--- use: fresh_options
local create_queue, unlisted, rescheduled, moved_near = create, {}, {}, false
local function move(id, state, due, payload, stored) -- stored: the options of a replacement; false to reschedule
  if state == 'ready' then
    unlisted[ready_entry(id) or ''] = true
  end
  if stored then
    p, payloads[p + 1], payloads[p + 2], options[id] = p + 2, id, payload, stored
    longest = math.max(longest, #payload)
  else
    rescheduled[id] = true
  end
  if due - now <= REPEAT_MS then
    moved_near = true
    remember(string.format('%.3f', now_us / 1000 + REPEAT_MS), ENDED_MARK .. id)
  end
end
--- use: push_each
remove_ready(unlisted)
for id in pairs(rescheduled) do -- only the new due counts from now on
  local failures, crashes, _, stored, reason = attrs_of(id)
  set_attrs(id, failures, crashes, nil, free_expiry(stored), reason)
end
ended_until = ended_until or '0'
if moved_near and string.find(ended_until, '^%d+$') and now_up + REPEAT_MS + 1 > tonumber(ended_until) then
  redis.call('HINCRBY', META, 'ended_until', int(now_up + REPEAT_MS + 1 - tonumber(ended_until)))
end
--- use: push_end

#!lua
-- push: stores new messages (absent -> scheduled). A message that is in the queue stays as it is: `upsert` changes it.
-- KEYS   the ten of the queue; push makes them if they do not exist
-- ARGV   now | attempt: '<until> <nonce>', or empty | per message, 1 to 1,000: id, due, payload, options
--        until: server ms of the first try + 10,000: 13 digits, and perhaps a dot and 3 digits
--        nonce: 8 to 64 random bytes, new for each call; a repetition of the call sends the same attempt
--        due: unix ms, or +ms from now
--        options: words of max_attempts=N, on_conflict=keep, traceparent=00-..., expires=MS or expires=+MS from the due
--        time (no attempt starts later), on_expire=dead|drop, cost=N (starts that the rate charges), 
--        window=MS (for that long after this push the id creates no other message), reuse (a window does not matter),
--        undo=MS (only if nothing happened to the id since it was cancelled at MS, in the last 12 s; else USED)
-- Reply  {header, {CREATED | EXISTS <state> | FINISHED | FINISHED <ms> | EXPIRED | REMEMBERED <ms> | USED |
--        FULL <why> | INVALID <why> | MOVING | AWAY | AWAY <what it remembers>, ...}}; one CREATED alone if it is the
--        result of all
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE, OOM: nothing was written
-- Cost   O(log n) a message
-- Again  with the same attempt: EXISTS or FINISHED, and EXPIRED from until on

--- use: fenced_begin
--- use: recent_marks
-- Making a function costs as much as a command: functions that most calls do not need are made where they are needed.
local create_queue
if not layout then
  --- use: create
  create_queue = create
end
--- use: due_ms
local attempt = ARGV[2] or ''
--- use: push_request
-- Fast path: every id is new, and all messages have the same options, or none. ZADD NX finds an id that is given twice.
-- Every other call takes the plain path below.
local all_new, near, text, score = not (call_mark or too_late or probes or flight) and count <= room, false
local words = ARGV[6]
replies, created, longest, head, length = {'CREATED'}, count, largest, old_head, not create_queue and old_length or nil
if all_new then
  if count == 1 then
    payloads, dues = {0, 0}, {0, 0} -- allocated in their final size
  else
    payloads, dues = {unpack(ARGV, 1, 2 * count)}, {unpack(ARGV, 1, 2 * count)}
  end
  for i = 1, count do
    local at, j, id = 4 * i, 2 * i, ids[i]
    local payload = ARGV[at + 1]
    if ARGV[at] ~= text then -- neighbours often share their due
      local due = due_ms(ARGV[at])
      text, score = ARGV[at], due and (string.byte(ARGV[at]) == 43 and int(due) or ARGV[at])
      head, near = math.min(head, due or head), near or due and due - now <= REPEAT_MS
    end
    if #payload > longest then
      longest = #payload
    end
    if not score or found[i] or ended and ended[i] or windows and windows[i] or ARGV[at + 2] ~= words
      or #id < 1 or #id > 200 or #payload > max_payload or not plain and string.find(id, '%c') then
      all_new = false
      break
    end
    payloads[j - 1], payloads[j], dues[j - 1], dues[j] = id, payload, score, id
  end
end
local read, shared -- the function that decodes options; the decoded options, if all messages have the same
if not all_new or words ~= '' then
  --- use: read_options
  read = read_options
end
if all_new and read then
  --- use: read_shared
end
if all_new then
  if create_queue then
    create_queue()
  elseif count > 1 or shared then -- ZADD may find an id twice; then they are judged one by one
    --- use: push_reads
  end
  local lives
  if layout > '4' then
    --- use: lives_of_pushes
  end
  redis.call('HSET', MESSAGES, unpack(payloads)) -- first, for a consumer has no right to it
  all_new = redis.call('ZADD', SCHEDULED, 'NX', unpack(dues)) == count
  if all_new and lives then
    redis.call('HSET', ATTRS, unpack(lives))
  end
end
changed, remember_call = all_new, near
if all_new and shared then
  --- use: store_shared
elseif not all_new then
  local verb, move, follow, read_options = 'push', nil, nil, read -- push moves no message
  --- use: state_of
  --- use: push_state
  --- use: push_each
end
--- use: push_end
local quiet = false
head = head or changed and first_score(SCHEDULED) or old_head
--- use: end
return {header, replies}

#!lua flags=allow-oom
-- Made by scripts/lua-dist from lua/beat.lua and lua/blocks: change these, not this file.
-- beat: records that a node lives, and does the leader's housekeeping.
--       A node that was silent for 3 s is forgotten. A node becomes or stays leader for 2.5 s. RECENT and DEAD are
--       trimmed, 500 and 250 a beat. After 3 s without any beat, or a clock that went back, reaps pause for 5 s, so
--       that live nodes can extend their leases first. If the clock went back, a queue that its rate closed opens.
--       A parked node announces how long it will be silent. It stays live, and leader, for that time. Until then META's
--       parked_until makes every script publish each earlier head. Its silence pauses no reap.
-- KEYS   the ten of the queue
-- ARGV   now | node: 1 to 200 bytes | stay, or leave to be forgotten at once
--        | with stay, if the node parks: for how long, 1,000 to 60,000 ms
--        Of a queue with a map:
--        now | node | first, of the node that should lead, or second, of its standbys | perhaps park, as with stay
--        A first takes the lead from a second. A second takes a free lead only after 1 s.
--        Of these also: @ and what the node tells of its process, 2 to 200 bytes. CLAIMS keeps it.
--        Of these and leave also the last: a report, LATENESS|HANDLING, of the messages that the node's handlers took
--        since its last one. It is added to META's sums, and the history gets a record.
--        now | node | watch: enters the partition's roster, for 3 s | number of the roster that the caller has, or 0
--        | tags of partitions that need help, with a blank between
--        now | node | unwatch: leaves the roster
--        Nodes watch the home, or another partition while the home is away.
-- Reply  {header, 1 if this node is the leader else 0, live nodes, reap_after ms, ready messages, 0 while closed
--        | of layout 4: how many lists of fires need more; with a map -1 | with a map: META's moving | 1: drained}
--        drained: an operator wants that the node takes nothing new. The elements before it are there then: -1, empty
--        of watch and unwatch: {header, number of the roster, {node, ...}, {tag that asked for help within 2 s, ...}
--        | 1: drained}
--        no nodes if the caller's number is the roster's; the number is 0 without a map
-- Errors BADKEYS, LAYOUT, BADNOW, BADARGS, WRONGTYPE: nothing was written
-- Cost   O(log nodes + trimmed); of watch O(nodes) if the roster changed
-- Again  harmless, but a report counts again

local SCHEDULED, READY, LEASES, CLAIMS, MESSAGES, ATTRS, DEAD, RECENT, NODES, META = unpack(KEYS)
local base, queue, slash, partition = string.match(META or '', '^(dueq:{([^{}/%c]+)(/?)(%d*)}):meta$')
if #KEYS ~= 10 or not base or #queue > 128 or #slash > #partition
  or SCHEDULED ~= base .. ':scheduled' or READY ~= base .. ':ready' or LEASES ~= base .. ':leases'
  or CLAIMS ~= base .. ':claims' or MESSAGES ~= base .. ':messages' or ATTRS ~= base .. ':attrs'
  or DEAD ~= base .. ':dead' or RECENT ~= base .. ':recent' or NODES ~= base .. ':nodes' then
  return redis.error_reply('BADKEYS give the ten keys of one queue, in their order: dueq:{NAME}:scheduled, ready, '
    .. 'leases, claims, messages, attrs, dead, recent, nodes, meta')
end
local layout, incarnation, seq, paused, parked_until, closed_until =
  unpack(redis.call('HMGET', META, 'layout', 'incarnation', 'seq', 'paused', 'parked_until', 'closed_until'))
local function int(number) return string.format('%d', number) end
-- epoch: of the partition's map; nil without one. known, probes: what the fence finds.
local clock, epoch, known, probes = ARGV[1], nil, nil, nil
if layout and layout ~= '1' then
  if layout ~= '2' and layout ~= '3' and layout ~= '4' and layout ~= '5' then
    return redis.error_reply('LAYOUT this queue has layout ' .. layout .. ', not 1, 2, 3, 4 or 5: use a newer dueq')
  end
  if layout == '2' or redis.call('HEXISTS', META, 'map') == 1 then
    epoch = tonumber(redis.call('HGET', META, 'epoch') or 0) or 0
  end
end
local now_us
if clock == '' then
  local time = redis.call('TIME')
  now_us = time[1] * 1000000 + time[2]
elseif string.find(clock or '', '^%d+%.?%d*$') and redis.call('HGET', META, 'test') then
  now_us = math.floor(clock * 1000 + 0.5)
else
  return redis.error_reply('BADNOW ARGV[1] must be empty: only a queue whose meta has a field test takes another clock')
end
local now, now_up = math.floor(now_us / 1000), math.ceil(now_us / 1000)
-- Nothing is promoted or claimed before `closed`: `opens`, the time of closed_until, or never while the queue is full.
-- False: it is open. The claim that uses up max_leased writes "full" before the time; lengths say whether it still is.
local opens, closed = false, false
if closed_until then
  opens = tonumber(string.match(closed_until, '^f?u?l?l? ?(%d+)$') or 0)
  opens = opens > now and opens
  closed = opens
  if string.byte(closed_until) == 102 then
    -- KEYS, which is global, and not the names of the keys: each local that finish uses costs 0.2 % of a call.
    local function is_full()
      local most = tonumber(string.match(redis.call('HGET', KEYS[10], 'max_leased') or '', '^%d+$') or '')
      -- Each message is in one state, so the leased ones are what the others leave.
      local leased = redis.call('HLEN', KEYS[5]) - redis.call('ZCARD', KEYS[1]) - redis.call('LLEN', KEYS[2])
        - redis.call('ZCARD', KEYS[7]) + 2
      return most and leased >= most
    end
    closed = is_full() and math.huge or opens
  end
end
local NEVER = 7258118400000 -- 2200-01-01: the due time of timers that wait for nothing
local REPEAT_MS = 12000 -- the largest distance of a push's until from now; how long RECENT keeps an id
local function first_score(zset) return tonumber(redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2] or 'inf') end
-- Redis does not roll back. So each script reads every key that it may write before its first write: a key of a wrong
-- type stops it in time. A score costs as much as three lengths: that of LEASES is read once, at the end.
local old_head, old_length = first_score(SCHEDULED), redis.call('LLEN', READY)
redis.call('ZCARD', LEASES)
-- Counts the call, wakes nodes, and returns the reply header. `quiet` leaves the wake-up list and the channel alone.
-- `head` and `length` (of READY) are read again if the call changed something and the script omits them.
local function finish(changed, quiet, head, length)
  head = head or changed and first_score(SCHEDULED) or old_head
  -- The end of a call: counts it, wakes nodes, makes `header`. As a function it costs as much as two commands, so the
  -- scripts of each message's life have it inline.
  --   changed, quiet  whether the call wrote something; whether it leaves the wake-up list and the channel alone
  --   head, length    the first score of SCHEDULED now; how many entries READY has, or nil: to be read
  if changed and layout then
    seq = redis.call('HINCRBY', META, 'seq', '1')
  end
  local next_deadline = first_score(LEASES)
  length = length or not changed and old_length
  if closed == math.huge and changed and not quiet then
    -- KEYS, which is global, and not the names of the keys: each local that finish uses costs 0.2 % of a call.
    local function is_full()
      local most = tonumber(string.match(redis.call('HGET', KEYS[10], 'max_leased') or '', '^%d+$') or '')
      -- Each message is in one state, so the leased ones are what the others leave.
      local leased = redis.call('HLEN', KEYS[5]) - redis.call('ZCARD', KEYS[1]) - redis.call('LLEN', KEYS[2])
        - redis.call('ZCARD', KEYS[7]) + 2
      return most and leased >= most
    end
    if not is_full() then -- a lease ended: wake nodes as for a new head
      local rest = tonumber(string.match(redis.call('HGET', META, 'closed_until') or '', '%d+$') or 0)
      closed = rest > now and rest
      redis.call('HSET', META, 'closed_until', int(rest))
      old_head, old_length = math.huge, 1
    end
  end
  if closed then -- as if no message were due earlier, and ready ones then
    length = length or redis.call('LLEN', READY)
    head, length = length > 1 and closed or math.max(head, closed), 1
    old_head = old_length > 1 and closed or math.max(old_head, closed)
  end
  if layout and not paused and not quiet then
    local parked = parked_until and (tonumber(parked_until) or 0) > now -- then each earlier head is published
    if head <= now or (length or redis.call('LLEN', READY)) > 1 then
      local wake = base .. ':wake'
      local tokens = tonumber(redis.pcall('LLEN', wake)) or 2
      -- While a slot is being migrated, EXISTS of two keys is refused. A wake-up list made here would then collide with
      -- the list that the source node still has to send, so the script makes none.
      if tokens == 0 and not tonumber(redis.pcall('EXISTS', META, wake)) then
        tokens = 2
      end
      for _ = tokens, 1 do
        redis.pcall('RPUSH', wake, '1')
      end
      if parked then -- a parked node does not wait on the wake-up list
        local first_ready = old_length < 2 and (length or redis.call('LLEN', READY)) > 1
        if first_ready or head < old_head then
          redis.pcall('SPUBLISH', base .. ':notice', int(first_ready and math.min(head, now) or head))
        end
      end
    elseif head < old_head and (parked or head - now <= 2000) then
      redis.pcall('SPUBLISH', base .. ':notice', int(head))
    end
  end
  local header = {now_us, '', 0, -1, -1, 0}
  if layout then
    header = {now_us, incarnation, tonumber(seq or 0), head < NEVER and head or -1,
      next_deadline < NEVER and next_deadline or -1, paused and 1 or 0, epoch}
  end
  return header
end
local node, word, park = ARGV[2], ARGV[3], 0
local attends = word == 'stay' or word == 'first' or word == 'second'
local count, report, told = #ARGV, nil, nil
if count > 3 and (attends or word == 'leave') and string.find(ARGV[count], '|', 1, true) then
  -- A report: two histograms of what the handlers of the node took since its last report, with a | between. A histogram:
  -- the number of its first bucket, then the counts from there on; or nothing. Of 68 buckets, two an octave, bucket N has
  -- the times of at most 2^(7 + N/2) us, and the last one all that are longer.
  local texts = {string.match(ARGV[count], '^([%d ]*)|([%d ]*)$')}
  local valid = #texts == 2 and #ARGV[count] <= 1600
  for i, text in ipairs(valid and texts or {}) do
    local numbers = {}
    for number in string.gmatch(text, '%d+') do
      numbers[#numbers + 1] = tonumber(number)
      valid = valid and (#numbers == 1 or numbers[#numbers] <= 1000000000)
    end
    valid = valid and #numbers ~= 1 and (numbers[1] or 0) + #numbers <= 69
    texts[i] = numbers
  end
  if valid then
    report, count = texts, count - 1
  end
end
if count > 3 and attends and string.byte(ARGV[count]) == 64 then
  told = #ARGV[count] > 1 and #ARGV[count] <= 200 and not string.find(ARGV[count], '%c') and ARGV[count]
  count = told and count - 1 or count
end
local form = count == 3 and (attends or word == 'leave' or word == 'unwatch')
if count == 4 and attends and string.find(ARGV[4], '^%d+$') then
  park = tonumber(ARGV[4])
  form = park >= 1000 and park <= 60000
elseif count == 5 and word == 'watch' then
  local function is_tag(text) -- whether it is the name of a partition: - or a number up to 999999999
    return text == '-' or text == '0' or #text <= 9 and string.find(text, '^[1-9]%d*$')
  end
  form = #ARGV[4] <= 16 and string.find(ARGV[4], '^%d+$') and #ARGV[5] <= 2560
  for tag in string.gmatch(ARGV[5], '[^ ]+') do
    form = form and is_tag(tag)
  end
end
if not form or #node < 1 or #node > 200 or string.find(node, '%c') then
  return redis.error_reply('BADARGS beat takes now, node (1 to 200 bytes), stay, leave, first or second, and unless it '
    .. 'leaves perhaps park ms (1000 to 60000), @process (2 to 200 bytes), and a report (lateness|handling); or '
    .. 'watch, number of the roster, tags; or unwatch')
end
if word == 'watch' or word == 'unwatch' then
  -- The roster of a queue with a map: the nodes that watch its home. NODES has them with negative times, and a byte 1
  -- before the name. META's roster is the roster's number, and help has tags, each with the time at which it was given.
  if not epoch then return {finish(false, true), 0, {}, {}} end
  local number, help, drained = unpack(redis.call('HMGET', META, 'roster', 'help', 'drained'))
  number, help = tonumber(number or 0) or 0, help or ''
  local changed = redis.call('ZREMRANGEBYSCORE', NODES, int(3000 - now), '(0')
    + redis.call('ZREMRANGEBYSCORE', NODES, '-inf', '(' .. int(-now)) -- of the future: the clock went back
  if word == 'watch' then
    changed = changed + redis.call('ZADD', NODES, int(-now), '\1' .. node)
  else
    changed = changed + redis.call('ZREM', NODES, '\1' .. node)
  end
  if changed > 0 then -- a time, for a replica that becomes the master may have an older number: none is used twice
    number = math.max(number + 1, now)
    redis.call('HSET', META, 'roster', int(number))
    if (drained or '') ~= '' then
      -- META's `drained` names the nodes that an operator drained, each between two line feeds: only those in NODES.
      local named, kept = {}, '\n'
      for name in string.gmatch(drained, '[^\n]+') do
        named[name] = true
      end
      for _, name in ipairs(redis.call('ZRANGE', NODES, '0', '-1')) do
        name = string.byte(name) == 1 and string.sub(name, 2) or name -- the roster has a byte 1
        if named[name] then
          named[name], kept = nil, kept .. name .. '\n'
        end
      end
      kept = kept ~= '\n' and kept or ''
      if kept ~= drained then
        drained = kept
        redis.call('HSET', META, 'drained', drained)
      end
    end
  end
  local names, asked, times = {}, {}, {}
  if word == 'watch' and number ~= tonumber(ARGV[4]) then
    for i, name in ipairs(redis.call('ZRANGE', NODES, '-inf', '(0', 'BYSCORE')) do
      names[i] = string.sub(name, 2)
    end
  end
  local function ask(tag, at)
    asked[#asked + 1], times[#times + 1] = tag, tag .. ':' .. int(at)
    asked[tag] = true
  end
  for tag in string.gmatch(ARGV[5] or '', '[^ ]+') do
    ask(tag, now)
  end
  for tag, at in string.gmatch(help, '([^ :]+):(%d+)') do
    if not asked[tag] and tonumber(at) <= now and now - tonumber(at) < 2000 then
      ask(tag, tonumber(at))
    end
  end
  if (ARGV[5] or '') ~= '' then
    redis.call('HSET', META, 'help', table.concat(times, ' '))
  end
  local is_drained = string.find(drained or '', '\n' .. node .. '\n', 1, true)
  return {finish(false, true), number, names, asked, is_drained and 1 or nil}
end
local function trim_recent(count) -- removes at most `count` names of RECENT whose time is over
  local over = math.min(redis.call('ZCOUNT', RECENT, '-inf', int(now)), count)
  if over > 0 then
    if (layout or '') > '4' and (redis.call('HGET', META, 'ended_lives') or '0') ~= '0' then
      -- Of the first `over` names of RECENT, whose time is over. If the id is in the queue again, its life goes on. META's
      -- ended_lives counts such names: mostly there are none.
      local lives, ended = {}, 0
      for _, name in ipairs(redis.call('ZRANGE', RECENT, '0', int(over - 1))) do
        if string.byte(name) == 7 then
          ended = ended + 1
          if redis.call('HEXISTS', MESSAGES, string.sub(name, 2)) == 0 then
            lives[#lives + 1] = name
          end
        end
      end
      if #lives > 0 then
        redis.call('HDEL', ATTRS, unpack(lives))
      end
      if ended > 0 then
        redis.call('HINCRBY', META, 'ended_lives', int(-ended))
      end
    end
    redis.call('ZREMRANGEBYRANK', RECENT, '0', int(over - 1))
  end
end
-- Before a node's id, in CLAIMS: '<ms> @<text>', what its last beat that had a text told. Not in META: consumers may
-- delete no field of it.
local PROCESS_MARK = '\0@'
if not layout then return {finish(false), 0, 0, 0, 0} end
local leader, leader_until, last_beat, reap_after, keep_ms, keep, drained = unpack(redis.call('HMGET', META,
  'leader', 'leader_until', 'last_beat', 'reap_after', 'dead_keep_ms', 'dead_keep', 'drained'))
local dead = redis.call('ZCARD', DEAD) - 1
redis.call('ZCARD', NODES); redis.call('ZCARD', RECENT); redis.call('HLEN', ATTRS)
if told or word == 'leave' then
  redis.call('HLEN', CLAIMS)
end
local messages = redis.call('HLEN', MESSAGES)

-- A time beyond the longest park is no announcement: the clock went back.
local announced = tonumber(parked_until or 0) or 0
if announced > now + 60000 then
  announced = 0
end
local ranked = epoch or word == 'first' or word == 'second'
local leader_rank = ranked and redis.call('HGET', META, 'leader_rank') -- the word of the leader's last beat
-- Silent nodes, but not those of the roster.
local silent = redis.call('ZRANGE', NODES, epoch and '0' or '-inf', now - 3000, 'BYSCORE')
local fell_silent = #silent > 0
-- Beats of the future that no node announced: the clock went back. Those that live beat again, and tell again.
for _, name in ipairs(redis.call('ZRANGE', NODES, '(' .. int(math.max(now, announced)), '(inf', 'BYSCORE')) do
  silent[#silent + 1] = name
end
if #silent > 0 then
  -- Forgets silent nodes. META's `gone` keeps what they told last, so that their leases can be explained: at most 20
  -- lines, the latest first: node, a tab, what it told.
  local gone = {}
  for from = 1, #silent, 1000 do
    local some, fields = {unpack(silent, from, math.min(from + 999, #silent))}, {}
    for i, name in ipairs(some) do
      fields[i] = PROCESS_MARK .. name
    end
    for i, last in ipairs(redis.call('HMGET', CLAIMS, unpack(fields))) do
      gone[#gone + 1] = last and some[i] .. '\t' .. last or nil
    end
    redis.call('ZREM', NODES, unpack(some))
    redis.call('HDEL', CLAIMS, unpack(fields))
  end
  if #gone > 0 then
    for line in string.gmatch(redis.call('HGET', META, 'gone') or '', '[^\n]+') do
      gone[#gone + 1] = line
    end
    redis.call('HSET', META, 'gone', table.concat(gone, '\n', 1, math.min(#gone, 20)))
  end
end
local silence = now - tonumber(last_beat or now)
if silence < 0 or silence > 3000 and (fell_silent or now - announced > 3000) then
  reap_after = now + 5000
end
local reopened
if silence < 0 then -- the opening that the rate chose may be far ahead now
  -- If the rate closed the queue, opens it: the next claim computes the opening again. A pause or throttle stays.
  if opens and int(opens) == redis.call('HGET', META, 'rate_until') then
    local rest = tonumber(redis.call('HGET', META, 'break_until') or '') or 0
    opens = rest > now and rest
    redis.call('HSET', META, 'closed_until', (closed == math.huge and 'full ' or '') .. int(opens or 0))
    closed = closed == math.huge and closed or opens
    old_head, old_length = math.huge, 1 -- finish sees the head as new: it publishes it
    reopened = true
  end
end
local until_ms = tonumber(leader_until)
local free = not leader or leader == '' or until_ms <= now or until_ms > math.max(now + 2500, announced)
if word == 'first' and leader_rank == 'second' then
  free = true
elseif word == 'second' and free and until_ms and until_ms <= now and now - until_ms < 1000 then
  free = false
end
if word == 'leave' then
  redis.call('ZREM', NODES, node)
  redis.call('HDEL', CLAIMS, PROCESS_MARK .. node)
  if leader == node then
    leader = ''
    leader_until = epoch and now or leader_until -- a second counts from now
  end
else
  redis.call('ZADD', NODES, now + park, node)
  if free then
    leader = node
  end
  if leader == node then
    leader_until = now + math.max(2500, park)
  end
end
if park > 0 then
  announced = math.max(announced, now + park)
end
if announced ~= (tonumber(parked_until or 0) or 0) then
  parked_until = int(announced)
  redis.call('HSET', META, 'parked_until', parked_until)
end
redis.call('HSET', META, 'last_beat', now, 'reap_after', reap_after or 0, 'leader', leader or '',
  'leader_until', leader_until or 0)
if (drained or '') ~= '' and (fell_silent or word == 'leave') then
  -- META's `drained` names the nodes that an operator drained, each between two line feeds: only those in NODES.
  local named, kept = {}, '\n'
  for name in string.gmatch(drained, '[^\n]+') do
    named[name] = true
  end
  for _, name in ipairs(redis.call('ZRANGE', NODES, '0', '-1')) do
    name = string.byte(name) == 1 and string.sub(name, 2) or name -- the roster has a byte 1
    if named[name] then
      named[name], kept = nil, kept .. name .. '\n'
    end
  end
  kept = kept ~= '\n' and kept or ''
  if kept ~= drained then
    drained = kept
    redis.call('HSET', META, 'drained', drained)
  end
end
if told then
  redis.call('HSET', CLAIMS, PROCESS_MARK .. node, now .. ' ' .. told)
end
if ranked and leader == node and leader_rank ~= word then
  redis.call('HSET', META, 'leader_rank', word)
end

trim_recent(500)
local too_old = redis.call('ZCOUNT', DEAD, '-inf', now - tonumber(keep_ms or 2592000000))
local over = math.max(dead - tonumber(keep or 100000), too_old)
if over > 0 then
  local ids = redis.call('ZRANGE', DEAD, 0, math.min(over, 250) - 1)
  redis.call('ZREMRANGEBYRANK', DEAD, 0, #ids - 1)
  redis.call('HDEL', MESSAGES, unpack(ids))
  redis.call('HDEL', ATTRS, unpack(ids))
  -- Both are nil in a queue of an older layout: a call there pays one comparison.
  local note, end_lives
  if (layout or '') > '4' then
    -- ATTRS keeps the life of a message under this byte and the id: '<ms> <word> <due> <began> <node> <text>', a line for
    -- each event, the latest last; what is unknown is -, or left out at the end. RECENT has the same name of a message that
    -- has ended, until its life is forgotten.
    local LIFE_MARK = '\7'
    -- META's life_keep_ms: how long the life of a message is kept after its end; without it no event is added.
    local keep_ms = tonumber(redis.call('HGET', META, 'life_keep_ms') or '')
    if (keep_ms or 0) > 0 then -- end_lives writes it
      redis.call('ZCARD', RECENT)
    end
    local function with_event(life, word, due, attempt, text)
      local line = int(now) .. ' ' .. word .. ' ' .. (attempt or due or '-')
      if text then
        line = line .. (attempt and ' ' or ' - - ') .. string.gsub(string.sub(text, 1, 200), '%c', ' ')
      end
      if not life then return line end
      local _, more = string.gsub(life, '\n', '')
      return (more < 19 and life or string.match(life, '\n(.*)$')) .. '\n' .. line
    end
    -- Adds an event to the life of a message that is in the queue.
    --   due      the due time that it got, as text; or nil
    --   attempt  of a delivery that ends: what attempt_of returned
    --   starts   whether the life begins with this event: a life of an earlier message of the id is forgotten
    note = function(id, word, due, attempt, text, starts)
      if keep_ms then
        local life = not starts and redis.call('HGET', ATTRS, LIFE_MARK .. id)
        redis.call('HSET', ATTRS, LIFE_MARK .. id, with_event(life, word, due, attempt, text))
      end
    end
    -- Of messages that left the queue: adds the last event and keeps their lives for life_keep_ms; those of a cancel for
    -- 12 s at least, for an undo. Without a word, or while RECENT is half full, it forgets them.
    --   attempt  a function that returns attempt_of an id; or nil
    end_lives = function(ids, word, attempt)
      local names, lives, scores = {}, {}, {}
      for i, id in ipairs(ids) do
        names[i] = LIFE_MARK .. id
      end
      local ms = word and keep_ms or 0
      if word == 'cancel' and keep_ms then
        ms = math.max(ms, REPEAT_MS)
      end
      local most = ms > 0 and (tonumber(redis.call('HGET', META, 'max_remembered') or '') or 1000000)
      if not most or 2 * (redis.call('ZCARD', RECENT) + #ids) > most then
        return redis.call('HDEL', ATTRS, unpack(names))
      end
      for i, life in ipairs(redis.call('HMGET', ATTRS, unpack(names))) do
        lives[2 * i - 1], lives[2 * i] = names[i], with_event(life, word, nil, attempt and attempt(ids[i]))
        scores[2 * i - 1], scores[2 * i] = int(now_up + ms), names[i]
      end
      redis.call('HSET', ATTRS, unpack(lives))
      redis.call('HINCRBY', META, 'ended_lives', redis.call('ZADD', RECENT, unpack(scores)))
      local function trim_recent(count) -- removes at most `count` names of RECENT whose time is over
        local over = math.min(redis.call('ZCOUNT', RECENT, '-inf', int(now)), count)
        if over > 0 then
          if (layout or '') > '4' and (redis.call('HGET', META, 'ended_lives') or '0') ~= '0' then
            -- Of the first `over` names of RECENT, whose time is over. If the id is in the queue again, its life goes on. META's
            -- ended_lives counts such names: mostly there are none.
            local lives, ended = {}, 0
            for _, name in ipairs(redis.call('ZRANGE', RECENT, '0', int(over - 1))) do
              if string.byte(name) == 7 then
                ended = ended + 1
                if redis.call('HEXISTS', MESSAGES, string.sub(name, 2)) == 0 then
                  lives[#lives + 1] = name
                end
              end
            end
            if #lives > 0 then
              redis.call('HDEL', ATTRS, unpack(lives))
            end
            if ended > 0 then
              redis.call('HINCRBY', META, 'ended_lives', int(-ended))
            end
          end
          redis.call('ZREMRANGEBYRANK', RECENT, '0', int(over - 1))
        end
      end
      trim_recent(#ids)
    end
  end
  if end_lives then
    end_lives(ids)
  end
  redis.call('HINCRBY', META, 'trimmed', #ids)
  dead, messages = dead - #ids, messages - #ids
end
if report then
  -- META's `history` has the counters at the last report; `lateness` and `handling` are the sums of all reports: a double
  -- for each of 68 buckets. The fields m0 to m59, h0 to h167 and d0 to d89 have the record at the end of each minute,
  -- hour and day: minute N of Unix time has the field m and N modulo 60.
  local RINGS = {
    minutes = {prefix = 'm', ms = 60000, slots = 60},
    hours = {prefix = 'h', ms = 3600000, slots = 168},
    days = {prefix = 'd', ms = 86400000, slots = 90},
  }
  -- The first part of a record: its time in ms, the counters, the numbers of messages in each state. Returns also
  -- `lateness`, `handling` and `history`.
  local function count_now(at, scheduled, ready, dead, messages)
    local counters = redis.call('HMGET', META, 'pushed', 'claimed', 'acked', 'repeated', 'retried', 'released', 'crashed',
      'died', 'cancelled', 'requeued', 'purged', 'trimmed', 'expired', 'throttled', 'snoozed', 'lateness', 'handling',
      'history')
    for i = 1, 15 do
      counters[i] = counters[i] or '0'
    end
    local leased = messages - scheduled - ready - dead -- each message is in one state
    return string.format('%.0f|%s|%d %d %d %d', at, string.sub(table.concat(counters, ' ', 1, 15), 1, 255),
      math.max(0, scheduled), math.max(0, ready), math.max(0, leased), math.max(0, dead)), unpack(counters, 16, 18)
  end
  local function time_of(record) -- or of its first part; nil if no script wrote it
    local at = record and #record <= 4096 and string.match(record, '^(%d+)|')
    return at and #at < 16 and tonumber(at) or nil
  end
  -- What follows in a record: for each histogram the number of its first bucket and the counts from there on, or nothing.
  local function histograms_of(lateness, handling)
    local texts = {}
    for i, sums in ipairs({lateness or '', handling or ''}) do
      local counts, first, last = #sums == 544 and {struct.unpack('<' .. string.rep('d', 68), sums)} or {}, nil, 0
      for bucket = 1, 68 do
        local count = counts[bucket]
        if count and count >= 1 then -- not NaN
          first, last, counts[bucket] = first or bucket, bucket, int(math.min(math.floor(count), 9007199254740991))
        else
          counts[bucket] = '0'
        end
      end
      texts[i] = first and int(first - 1) .. ' ' .. table.concat(counts, ' ', first, last) or ''
    end
    return '|' .. texts[1] .. '|' .. texts[2]
  end
  local counted, lateness, handling, last =
    count_now(now, redis.call('ZCARD', SCHEDULED) - 1, redis.call('LLEN', READY) - 1, dead, messages - 1)
  local function add(sums, numbers) -- adds a histogram of the report
    sums = sums and #sums == 544 and sums or string.rep('\0', 544) -- of a field that no script wrote: from 0 again
    local more, at = #numbers - 1, 8 * (numbers[1] or 0)
    if more < 1 then return sums end
    local form = '<' .. string.rep('d', more)
    local counts = {struct.unpack(form, sums, at + 1)}
    for i = 1, more do
      counts[i] = counts[i] + numbers[i + 1]
    end
    return string.sub(sums, 1, at) .. struct.pack(form, unpack(counts, 1, more)) .. string.sub(sums, at + 8 * more + 1)
  end
  local written = {'history', counted, 'lateness', add(lateness, report[1]), 'handling', add(handling, report[2])}
  local function write(ring, slot, record)
    written[#written + 1], written[#written + 2] = ring.prefix .. int(slot % ring.slots), record
  end
  local at = time_of(last)
  if not at then -- the first report: no slot has what was counted before
    for _, ring in pairs(RINGS) do
      local slot = math.floor(now / ring.ms)
      write(ring, slot - 1, int(slot * ring.ms - 1) .. string.match(counted, '|.*') .. histograms_of(lateness, handling))
    end
  elseif at > now then -- the clock went back: no slot may be of the future
    for _, ring in pairs(RINGS) do
      for slot = 0, ring.slots - 1 do
        local time = time_of(redis.call('HGET', META, ring.prefix .. slot))
        if time and time > now then
          write(ring, slot, '')
        end
      end
    end
  elseif math.floor(at / 60000) < math.floor(now / 60000) and not string.find(last, '[^%d |]') then
    last = last .. histograms_of(lateness, handling)
    for _, ring in pairs(RINGS) do
      local slot = math.floor(at / ring.ms)
      if slot < math.floor(now / ring.ms) then
        write(ring, slot, last)
      end
    end
  end
  redis.call('HSET', META, unpack(written))
end
local ready = closed and 0 or math.max(0, redis.call('LLEN', READY) - 1)
local nodes = epoch and redis.call('ZCOUNT', NODES, '0', '(inf') or redis.call('ZCARD', NODES) - 1
local header = finish(over > 0 or reopened)
local low = layout > '3' and tonumber(redis.call('HGET', META, 'low_lists') or 0) or epoch and -1 or nil
local moving = epoch and redis.call('HGET', META, 'moving') or nil
if drained and string.find(drained, '\n' .. node .. '\n', 1, true) then
  return {header, leader == node and 1 or 0, nodes, tonumber(reap_after or 0), ready, low or -1, moving or '', 1}
end
-- The reply ends at nil.
return {header, leader == node and 1 or 0, nodes, tonumber(reap_after or 0), ready, low, moving}

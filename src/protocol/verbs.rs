//! The verbs and their Lua scripts. No other file includes the scripts.

use std::sync::OnceLock;

use redis::Script;

macro_rules! verbs {
    ($($verb:ident $name:literal),+ $(,)?) => {
        /// A verb of the protocol: one script.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum Verb { $($verb),+ }

        impl Verb {
            /// All verbs.
            pub(crate) const ALL: &[Self] = &[$(Self::$verb),+];

            /// The name of the script's file.
            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$verb => $name),+ }
            }

            /// The source of the script that was compiled in.
            fn compiled_code(self) -> &'static str {
                match self { $(Self::$verb => include_str!(concat!("../../lua/dist/", $name, ".lua"))),+ }
            }
        }
    };
}

/// Writes the placeholder of an existing hash, so that a WAIT after it covers all writes before it.
///
/// A server whose memory is full refuses a plain HSET. In a script, Redis allows every command
/// after a first write that needs no memory, so the script first deletes a field that never exists.
/// The script does not create a deleted queue again.
pub(crate) const TOUCH: &str = "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then \
redis.call('HDEL', KEYS[1], '') redis.call('HSET', KEYS[1], ARGV[1], '') end";

/// Deletes the ten keys of a partition. Refuses, with -1, if `ARGV[1]` is set and differs from the
/// incarnation, or if `ARGV[2]` is set and the epoch is higher. Returns how many keys it deleted.
///
/// This script is not a verb and not in the Functions library: only an operator's client sends it.
pub(crate) const UNLINK_IF: &str = "local incarnation, epoch = unpack(redis.call('HMGET', KEYS[10], 'incarnation', 'epoch')) \
if ARGV[1] ~= '' and incarnation ~= ARGV[1] \
or ARGV[2] ~= '' and (tonumber(epoch or '') or 0) > tonumber(ARGV[2]) then return -1 end \
return redis.call('UNLINK', unpack(KEYS))";

/// Says whether a queue is empty and was not used for some time, the first argument in ms, and deletes
/// its keys if the second is 1. The reply is `ABSENT`, `UNUSED` and since when in ms, or `KEPT` and why.
///
/// Every use changes a counter, so a queue is unused since a time if a record of its history from
/// before that time has today's counters. A record of the last ms of a day may have counters of a
/// later time: a first report writes it for the day before.
///
/// Like [`UNLINK_IF`], this script is not a verb.
pub(crate) const UNLINK_UNUSED: &str = "local meta = KEYS[10] \
local time = redis.call('TIME') local now = time[1] * 1000 + math.floor(time[2] / 1000) \
local layout, map, schedules, sets, paused, opens, windows = unpack(redis.call('HMGET', meta, \
'layout', 'map', 'schedules', 'schedule_sets', 'paused', 'break_until', 'windows_until')) \
if not layout then return 'ABSENT' end \
if not string.find(layout, '^[1-5]$') then return 'KEPT layout' end \
if layout == '2' or map then return 'KEPT partitions' end \
if sets or (tonumber(schedules or 0) or 1) > 0 then return 'KEPT schedules' end \
for i, read in ipairs({'ZCARD', 'LLEN', 'ZCARD', 'HLEN', 'HLEN', 'HLEN', 'ZCARD'}) do \
if redis.call(read, KEYS[i]) > 1 then return 'KEPT messages' end end \
redis.call('ZCARD', KEYS[8]) redis.call('ZCARD', KEYS[9]) redis.call('LLEN', KEYS[11]) \
local settings = redis.call('HMGET', meta, 'max_attempts', 'max_crashes', 'max_messages', 'max_payload_bytes', \
'dead_keep_ms', 'dead_keep', 'rate', 'max_leased', 'max_throttle_ms', 'max_remembered') \
for i = 1, 10 do if settings[i] then return 'KEPT settings' end end \
if layout ~= '1' or paused or (tonumber(opens or 0) or 0) > now then return 'KEPT settings' end \
if (tonumber(windows or 0) or now + 1) > now then return 'KEPT windows' end \
local counters = redis.call('HMGET', meta, 'pushed', 'claimed', 'acked', 'repeated', 'retried', 'released', \
'crashed', 'died', 'cancelled', 'requeued', 'purged', 'trimmed', 'expired', 'throttled', 'snoozed') \
for i = 1, 15 do counters[i] = counters[i] or '0' end \
counters = string.sub(table.concat(counters, ' '), 1, 255) \
local fields, since = {'history'}, now + 1 for i = 0, 89 do fields[i + 2] = 'd' .. i end \
for _, record in ipairs(redis.call('HMGET', meta, unpack(fields))) do \
local at, counted = string.match(record or '', '^(%d+)|([^|]*)|') at = tonumber(at or '') \
if counted == counters and at % 86400000 < 86399999 then since = math.min(since, at) end end \
if now - since < tonumber(ARGV[1]) then return 'KEPT used' end \
if ARGV[2] == '1' then redis.call('UNLINK', unpack(KEYS)) end \
return 'UNUSED ' .. string.format('%.0f', since)";

/// The scripts that this process uses, and their hashes; computed once.
static SCRIPTS: OnceLock<Vec<(&'static str, Script)>> = OnceLock::new();

impl Verb {
    /// The source of the script that this process uses.
    pub(crate) fn code(self) -> &'static str {
        self.script().0
    }

    /// The hash with which EVALSHA calls it.
    pub(crate) fn sha(self) -> &'static str {
        self.script().1.get_hash()
    }

    /// Whether a call with these arguments never writes.
    pub(crate) fn only_reads(self, args: &[&[u8]]) -> bool {
        match self {
            Self::Get | Self::Peek | Self::Stats | Self::History | Self::Schedules => true,
            Self::Dues | Self::Nodes | Self::Held => true,
            // The last argument of these verbs asks for repairs.
            Self::Verify | Self::Audit => args.last().is_some_and(|repair| repair.is_empty()),
            _ => false,
        }
    }

    fn script(self) -> &'static (&'static str, Script) {
        &SCRIPTS.get_or_init(|| scripts(Self::compiled_code))[self as usize]
    }

    /// Replaces the scripts for which `code` returns one. Returns `false` if a script was called
    /// already.
    #[cfg(feature = "harness")]
    pub(crate) fn replace(code: impl Fn(Self) -> Option<&'static str>) -> bool {
        SCRIPTS
            .set(scripts(|verb| {
                code(verb).unwrap_or_else(|| verb.compiled_code())
            }))
            .is_ok()
    }
}

fn scripts(code: impl Fn(Verb) -> &'static str) -> Vec<(&'static str, Script)> {
    Verb::ALL
        .iter()
        .map(|verb| (code(*verb), Script::new(code(*verb))))
        .collect()
}

verbs! {
    Push "push", Upsert "upsert", Promote "promote", Claim "claim", Ack "ack", AckPush "ack_push", Again "again", Retry "retry", Release "release",
    Snooze "snooze", Throttle "throttle", Bury "bury", Extend "extend", Reap "reap", Cancel "cancel", Reschedule "reschedule", RunNow "run_now",
    Requeue "requeue", Purge "purge", Pause "pause", Resume "resume", Configure "configure", Beat "beat",
    Get "get", Peek "peek", Stats "stats", History "history", Verify "verify", Audit "audit", Remap "remap", Depart "depart", Arrive "arrive",
    Schedule "schedule", Schedules "schedules", Amend "amend", Trigger "trigger", Refill "refill",
    Dues "dues", Nodes "nodes", Held "held",
}

//! The Lua scripts: the only place that includes them.

use std::sync::OnceLock;

use redis::Script;

macro_rules! verbs {
    ($($verb:ident $name:literal),+ $(,)?) => {
        /// A verb of the protocol: one script.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum Verb { $($verb),+ }

        impl Verb {
            /// All of them.
            pub(crate) const ALL: &[Self] = &[$(Self::$verb),+];

            /// As the file is named.
            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$verb => $name),+ }
            }

            /// The script that was compiled in.
            fn compiled_code(self) -> &'static str {
                match self { $(Self::$verb => include_str!(concat!("../../lua/dist/", $name, ".lua"))),+ }
            }
        }
    };
}

/// Writes the placeholder of an existing hash, so that a WAIT after it covers all writes before it.
///
/// A server whose memory is full refuses a plain HSET. In a script, Redis allows every command
/// after a first write that needs no memory; hence the HDEL of a field that never exists. It does
/// not create a deleted queue again.
pub(crate) const TOUCH: &str = "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then \
redis.call('HDEL', KEYS[1], '') redis.call('HSET', KEYS[1], ARGV[1], '') end";

/// Deletes the keys of a partition, of which meta is the tenth, if it is the queue that was meant:
/// its incarnation is that of the first argument, if there is one, and its epoch not above that of
/// the second, if there is one. Returns how many keys it deleted, and -1 if it is another queue.
///
/// It is no verb, and no part of the Functions library: only an operator's client sends it.
pub(crate) const UNLINK_IF: &str = "local incarnation, epoch = unpack(redis.call('HMGET', KEYS[10], 'incarnation', 'epoch')) \
if ARGV[1] ~= '' and incarnation ~= ARGV[1] \
or ARGV[2] ~= '' and (tonumber(epoch or '') or 0) > tonumber(ARGV[2]) then return -1 end \
return redis.call('UNLINK', unpack(KEYS))";

/// The scripts of this process and their hashes; computed once.
static SCRIPTS: OnceLock<Vec<(&'static str, Script)>> = OnceLock::new();

impl Verb {
    /// The script itself.
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
            // Their last argument asks for repairs.
            Self::Verify | Self::Audit => args.last().is_some_and(|repair| repair.is_empty()),
            _ => false,
        }
    }

    fn script(self) -> &'static (&'static str, Script) {
        &SCRIPTS.get_or_init(|| scripts(Self::compiled_code))[self as usize]
    }

    /// Replaces the scripts for which `code` returns one; `false` if a script was called already.
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
    Get "get", Peek "peek", Stats "stats", History "history", Verify "verify", Audit "audit", Remap "remap",
    Schedule "schedule", Schedules "schedules", Amend "amend", Trigger "trigger", Refill "refill",
    Dues "dues", Nodes "nodes", Held "held",
}

//! The Lua scripts: the only place that includes them.

use std::sync::LazyLock;

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
            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$verb => $name),+ }
            }

            /// The script itself.
            pub(crate) fn code(self) -> &'static str {
                match self { $(Self::$verb => include_str!(concat!("../../lua/", $name, ".lua"))),+ }
            }

            /// What EVALSHA calls it by; computed once.
            pub(crate) fn sha(self) -> &'static str {
                static SCRIPTS: LazyLock<Vec<Script>> = LazyLock::new(|| vec![$(Script::new(Verb::$verb.code())),+]);
                SCRIPTS[self as usize].get_hash()
            }
        }
    };
}

verbs! {
    Push "push", Promote "promote", Claim "claim", Ack "ack", Again "again", Retry "retry", Release "release",
    Bury "bury", Extend "extend", Reap "reap", Cancel "cancel", Reschedule "reschedule", RunNow "run_now",
    Requeue "requeue", Purge "purge", Pause "pause", Resume "resume", Configure "configure", Beat "beat",
    Get "get", Peek "peek", Stats "stats",
}

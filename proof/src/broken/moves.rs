//! Scripts that break the way of a message to another partition.

use super::Variant;

/// The length of a run that moves messages to and fro, in seconds.
const SECONDS: u64 = 15;

/// Scripts that lose, double or change what moves. A run on a cluster catches them.
pub const OF_MOVES: [Variant; 4] = [
    Variant {
        name: "depart_leaves_message",
        what: "depart takes a message along and leaves it where it was",
        verb: "depart",
        shipped: shipped!("depart"),
        exchanges: &[
            ("redis.call('ZREM', zset, unpack(found))", ""),
            ("redis.call('HDEL', MESSAGES, unpack(found))", ""),
            ("redis.call('HDEL', ATTRS, unpack(found))", ""),
        ],
        seconds: SECONDS,
    },
    Variant {
        name: "arrive_stores_nothing",
        what: "arrive says that it has stored a batch and stores nothing",
        verb: "arrive",
        shipped: shipped!("arrive"),
        exchanges: &[("int(land(records))", "int(#records / 5)")],
        seconds: SECONDS,
    },
    Variant {
        name: "arrive_forgets_due",
        what: "arrive makes every message due at once",
        verb: "arrive",
        shipped: shipped!("arrive"),
        exchanges: &[("into[#into + 1] = score", "into[#into + 1] = int(now)")],
        seconds: SECONDS,
    },
    Variant {
        name: "push_ignores_probe",
        what: "push stores a message where it should only look for it",
        verb: "push",
        shipped: shipped!("push"),
        exchanges: &[
            ("or probes or flight)", "or flight)"),
            ("if flight or probes then", "if flight then"),
        ],
        seconds: SECONDS,
    },
];

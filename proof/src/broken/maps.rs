//! Scripts with a broken partition map or a broken fence.

use super::{SECONDS, Variant};

/// The line that compares the epoch of a call with that of the partition.
const FENCE: &str = "if known ~= epoch then";

/// Scripts that break the partition map or the fence. A drill on one server catches them.
pub const OF_MAPS: [Variant; 10] = [
    Variant {
        name: "push_without_fence",
        what: "push compares no epochs",
        verb: "push",
        shipped: shipped!("push"),
        exchanges: &[(FENCE, "if false then")],
        seconds: SECONDS,
    },
    Variant {
        name: "push_accepts_older",
        what: "push refuses newer maps and takes older ones",
        verb: "push",
        shipped: shipped!("push"),
        exchanges: &[(FENCE, "if (known or 0) > (epoch or 0) then")],
        seconds: SECONDS,
    },
    Variant {
        name: "push_makes_partitions",
        what: "push makes a partition that was removed",
        verb: "push",
        shipped: shipped!("push"),
        exchanges: &[
            ("if behind then", "if false then"),
            (FENCE, "if epoch and known ~= epoch then"),
        ],
        seconds: SECONDS,
    },
    Variant {
        name: "cancel_without_fence",
        what: "cancel compares no epochs",
        verb: "cancel",
        shipped: shipped!("cancel"),
        exchanges: &[(FENCE, "if false then")],
        seconds: SECONDS,
    },
    Variant {
        name: "requeue_without_fence",
        what: "requeue of ids compares no epochs",
        verb: "requeue",
        shipped: shipped!("requeue"),
        exchanges: &[(FENCE, "if false then")],
        seconds: SECONDS,
    },
    Variant {
        name: "get_without_fence",
        what: "get compares no epochs",
        verb: "get",
        shipped: shipped!("get"),
        exchanges: &[(FENCE, "if false then")],
        seconds: SECONDS,
    },
    Variant {
        name: "push_tells_no_epoch",
        what: "the header of push has no epoch",
        verb: "push",
        shipped: shipped!("push"),
        exchanges: &[("paused and 1 or 0, epoch}", "paused and 1 or 0}")],
        seconds: SECONDS,
    },
    Variant {
        name: "remap_over_messages",
        what: "remap does not look for messages",
        verb: "remap",
        shipped: shipped!("remap"),
        exchanges: &[(
            "local held = messages()\n  if held > 0 then",
            "local held = messages()\n  if false then",
        )],
        seconds: SECONDS,
    },
    Variant {
        name: "remap_forgets",
        what: "remap does not look at what is remembered",
        verb: "remap",
        shipped: shipped!("remap"),
        exchanges: &[("if last > now then return", "if false then return")],
        seconds: SECONDS,
    },
    Variant {
        name: "remap_leaves_home_empty",
        what: "remap forward gives an emptied home no map",
        verb: "remap",
        shipped: shipped!("remap"),
        exchanges: &[(
            "if has or not expects and own >= map_epoch then",
            "if has or not expects and (own >= map_epoch or slash == '' and not own_map) then",
        )],
        seconds: SECONDS,
    },
];

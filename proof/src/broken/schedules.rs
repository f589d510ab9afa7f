//! Broken scripts of schedules and windows.

use super::{SECONDS, Variant};

/// The length of a run that catches a script that breaks schedules, in seconds.
const SCHEDULE_SECONDS: u64 = 6;
/// Like `SCHEDULE_SECONDS`, for faults that make a schedule stand still for 5 s, or that only an
/// audit during a delivery finds.
const LATE_SECONDS: u64 = 10;

/// Lets no tick take the fast path of a claim: faults of the other path show sooner.
const NO_PLAIN_TICKS: (&str, &str) = ("if following and following > now and ", "if false and ");

/// Scripts that break schedules or windows: caught by a run on one server with little other traffic.
pub const OF_SCHEDULES: [Variant; 17] = [
    Variant {
        name: "push_forgets_windows",
        what: "push does not look whether a window remembers the id",
        verb: "push",
        shipped: shipped!("push"),
        exchanges: &[(
            "if not (earlier or asked.reuse) and remembered(i) then",
            "if false then",
        )],
        seconds: SCHEDULE_SECONDS,
    },
    Variant {
        name: "claim_makes_no_tick",
        what: "claim counts a tick and moves the timer, and makes no tick",
        verb: "claim",
        shipped: shipped!("claim"),
        exchanges: &[
            NO_PLAIN_TICKS,
            (
                "s.missed = s.missed + past - 1\n",
                "s.missed = s.missed + past - 1 if now % 4 == 0 then s.made, nominal = s.made + 1, nil end\n",
            ),
        ],
        seconds: SCHEDULE_SECONDS,
    },
    Variant {
        name: "claim_skips_fires",
        what: "claim moves the timer past a fire that it neither makes nor counts",
        verb: "claim",
        shipped: shipped!("claim"),
        exchanges: &[
            NO_PLAIN_TICKS,
            (
                "s.missed = s.missed + past - 1\n",
                "s.missed = s.missed + past - 1 if now % 4 == 0 then nominal = nil end\n",
            ),
        ],
        seconds: SCHEDULE_SECONDS,
    },
    Variant {
        name: "claim_drops_fires",
        what: "claim drops one fire too many from the list of a cron",
        verb: "claim",
        shipped: shipped!("claim"),
        exchanges: &[
            NO_PLAIN_TICKS,
            (
                "s.fires = lists.drop(list, past)",
                "s.fires = lists.drop(list, past + 1)",
            ),
        ],
        seconds: SCHEDULE_SECONDS,
    },
    Variant {
        name: "claim_leaves_timer",
        what: "claim makes a tick and does not move the timer",
        verb: "claim",
        shipped: shipped!("claim"),
        exchanges: &[
            NO_PLAIN_TICKS,
            (
                "          move_on(s)\n          write_schedule(s)\n",
                "          s = parse_schedule(name, text, fires)\n",
            ),
        ],
        seconds: SCHEDULE_SECONDS,
    },
    Variant {
        name: "claim_counts_missed_twice",
        what: "claim counts missed fires twice",
        verb: "claim",
        shipped: shipped!("claim"),
        exchanges: &[(
            "s.missed = s.missed + past - 1",
            "s.missed = s.missed + 2 * (past - 1)",
        )],
        seconds: SCHEDULE_SECONDS,
    },
    Variant {
        name: "claim_ignores_limit",
        what: "claim makes ticks beyond the limit of a schedule",
        verb: "claim",
        shipped: shipped!("claim"),
        exchanges: &[NO_PLAIN_TICKS, ("s.made >= s.limit or ", "")],
        seconds: SCHEDULE_SECONDS,
    },
    Variant {
        name: "refill_loses_fire",
        what: "refill leaves out the first of the new fires",
        verb: "refill",
        shipped: shipped!("refill"),
        exchanges: &[(
            "' ' or '') .. more\n",
            "' ' or '') .. string.gsub(more, '^%d+ ?', '', 1)\n",
        )],
        seconds: SCHEDULE_SECONDS,
    },
    Variant {
        name: "schedule_resets_next",
        what: "schedule moves the next fire of a schedule that it keeps",
        verb: "schedule",
        shipped: shipped!("schedule"),
        exchanges: &[
            (
                "(is_name_only and 'STAYS' or kept(unpack(ARGV, at + 1, at + 6)))",
                "is_name_only and 'STAYS'",
            ),
            (
                "  if changed and not s.same then\n",
                "  if changed and s.same and old.state == 'active' then\n    old.next = s.next write_schedule(old) place_timer(old, old)\n  end\n  if changed and not s.same then\n",
            ),
        ],
        seconds: SCHEDULE_SECONDS,
    },
    Variant {
        name: "schedule_ignores_revision",
        what: "schedule applies older revisions",
        verb: "schedule",
        shipped: shipped!("schedule"),
        exchanges: &[("tonumber(revision) < stored then", "false then")],
        seconds: SCHEDULE_SECONDS,
    },
    Variant {
        name: "claim_loses_timers",
        what: "claim places only the first timer that it looked at again",
        verb: "claim",
        shipped: shipped!("claim"),
        exchanges: &[(
            "redis.call('ZADD', SCHEDULED, unpack(timers))",
            "redis.call('ZADD', SCHEDULED, timers[1], timers[2])",
        )],
        seconds: SECONDS,
    },
    Variant {
        name: "schedule_keeps_changed",
        what: "schedule keeps a schedule whose payload has changed",
        verb: "schedule",
        shipped: shipped!("schedule"),
        exchanges: &[(
            "and redis.call('HGET', MESSAGES, TIMER .. s.name) == s.payload",
            "and redis.call('HEXISTS', MESSAGES, TIMER .. s.name) == 1",
        )],
        seconds: SCHEDULE_SECONDS,
    },
    Variant {
        name: "schedule_leaves_timer",
        what: "schedule changes a schedule and does not move its timer",
        verb: "schedule",
        shipped: shipped!("schedule"),
        exchanges: &[(
            "  place_timer(s, old)\n",
            "  if not old then place_timer(s, old) end\n",
        )],
        seconds: SECONDS,
    },
    Variant {
        name: "amend_leaves_timer",
        what: "amend resumes a schedule and does not move its timer",
        verb: "amend",
        shipped: shipped!("amend"),
        exchanges: &[(
            "      place_timer(s, s)\n",
            "      if change == 'pause' then place_timer(s, s) end\n",
        )],
        seconds: LATE_SECONDS,
    },
    Variant {
        name: "refill_leaves_timer",
        what: "refill does not move the timer of a cron that ran dry",
        verb: "refill",
        shipped: shipped!("refill"),
        exchanges: &[(
            "    redis.call('ZADD', SCHEDULED, 'XX', int(due_of_timer(s)), TIMER .. s.name)\n",
            "",
        )],
        seconds: SECONDS,
    },
    Variant {
        name: "claim_postpones_timers",
        what: "claim postpones the timers that are too many for one call",
        verb: "claim",
        shipped: shipped!("claim"),
        exchanges: &[
            (
                "if is_timer and found == 64 then",
                "if is_timer and found == 1 then",
            ),
            (
                "      for k = #ids, i, -1 do\n",
                "      for k = #ids, i, -1 do\n        redis.call('ZADD', SCHEDULED, 'XX', int(now + 60000), ids[k])\n",
            ),
        ],
        seconds: LATE_SECONDS,
    },
    Variant {
        name: "audit_takes_windows",
        what: "audit takes deliveries with a window from their handlers",
        verb: "audit",
        shipped: shipped!("audit"),
        exchanges: &[("'^%d+%a*%+?$', 17)", "'^[1-9]%d*%a*%+?$', 17)")],
        seconds: LATE_SECONDS,
    },
];

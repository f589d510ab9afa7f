//! Broken scripts, each with a few words replaced. A harness that does not catch all of them proves
//! nothing.

use std::path::Path;

use anyhow::{Context, Result, ensure};

/// A broken script.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    pub name: &'static str,
    /// The fault in it.
    pub what: &'static str,
    /// The file of `lua/dist/` that is broken, without its extension, and its text.
    verb: &'static str,
    shipped: &'static str,
    /// Texts that occur once in the script, and their replacements.
    exchanges: &'static [(&'static str, &'static str)],
    /// A run of this length catches it, in seconds.
    pub seconds: u64,
}

/// For scripts that break what only happens now and then.
const SECONDS: u64 = 20;

macro_rules! shipped {
    ($verb:literal) => {
        include_str!(concat!("../../lua/dist/", $verb, ".lua"))
    };
}

/// Caught by a run on one server.
pub const VARIANTS: [Variant; 18] = [
    Variant {
        name: "ack_any_token",
        what: "ack does not compare the token",
        verb: "ack",
        shipped: shipped!("ack"),
        exchanges: &[("return claim and ", "return claim or false and ")],
        seconds: SECONDS,
    },
    Variant {
        name: "claim_keeps_scheduled",
        what: "claim does not remove from scheduled",
        verb: "claim",
        shipped: shipped!("claim"),
        exchanges: &[(
            "redis.call('ZREMRANGEBYRANK', SCHEDULED, '0', taken",
            "math.max('0', taken",
        )],
        seconds: SECONDS,
    },
    Variant {
        name: "cancel_forgets_ready",
        what: "cancel says CANCELLED of a ready message and leaves it there",
        verb: "cancel",
        shipped: shipped!("cancel"),
        // The following code then removes an id that does not exist.
        exchanges: &[("unlisted[ready_entry(id) or ''] = true", "id = ''")],
        seconds: SECONDS,
    },
    Variant {
        name: "push_writes_first",
        what: "push writes the payload before it validates",
        verb: "push",
        shipped: shipped!("push"),
        exchanges: &[(
            "  replies[i] = one(i)\n",
            "  redis.call('HSET', MESSAGES, ids[i], ARGV[4 * i + 1]) replies[i] = one(i)\n",
        )],
        seconds: SECONDS,
    },
    Variant {
        name: "reap_free_of_charge",
        what: "reap does not charge the crash",
        verb: "reap",
        shipped: shipped!("reap"),
        exchanges: &[(
            "elseif crashes == 1 then\n    set_attrs(id, failures, crashes, nil, options, reason)",
            "elseif crashes == 1 then\n    set_attrs(id, failures, 0, nil, options, reason)",
        )],
        seconds: SECONDS,
    },
    Variant {
        name: "claim_without_lease",
        what: "claim sets no lease",
        verb: "claim",
        shipped: shipped!("claim"),
        exchanges: &[(
            "redis.call('ZADD', LEASES, deadline, LEASE_MARK .. token)",
            "",
        )],
        seconds: SECONDS,
    },
    Variant {
        name: "reschedule_leaves_ready",
        what: "reschedule leaves the old due in ready",
        verb: "reschedule",
        shipped: shipped!("reschedule"),
        exchanges: &[("unlisted[ready] = true", "")],
        seconds: SECONDS,
    },
    Variant {
        name: "claim_ignores_pause",
        what: "claim grants while the queue is paused",
        verb: "claim",
        shipped: shipped!("claim"),
        exchanges: &[("if paused or ready + due < 1", "if ready + due < 1")],
        seconds: SECONDS,
    },
    Variant {
        name: "claim_ignores_closing",
        what: "claim grants before the queue opens",
        verb: "claim",
        shipped: shipped!("claim"),
        exchanges: &[("if closed then\n  ready = 0\nelseif", "if")],
        seconds: SECONDS,
    },
    Variant {
        name: "push_forgets_calls",
        what: "push does not look whether this call was made before",
        verb: "push",
        shipped: shipped!("push"),
        exchanges: &[("mark = redis.call('ZSCORE', RECENT, call)", "mark = false")],
        seconds: SECONDS,
    },
    Variant {
        name: "claim_forgets_tat",
        what: "claim does not store what it charged the rate",
        verb: "claim",
        shipped: shipped!("claim"),
        exchanges: &[("fields[1], fields[2] = 'tat', int(tat)", "")],
        seconds: LIMIT_SECONDS,
    },
    Variant {
        name: "claim_counts_no_leased",
        what: "claim does not subtract the leased messages from max_leased",
        verb: "claim",
        shipped: shipped!("claim"),
        exchanges: &[(
            "limits.places = max_leased - leased",
            "limits.places = max_leased + 0",
        )],
        seconds: LIMIT_SECONDS,
    },
    Variant {
        name: "claim_ignores_expiry",
        what: "claim grants messages that have expired",
        verb: "claim",
        shipped: shipped!("claim"),
        exchanges: &[("if late_ms > 0 then", "if false then")],
        seconds: LIMIT_SECONDS,
    },
    Variant {
        name: "throttle_leaves_open",
        what: "throttle does not close the queue",
        verb: "throttle",
        shipped: shipped!("throttle"),
        exchanges: &[(
            "  redis.call('HSET', META, 'closed_until', (closed == math.huge and 'full ' or '') .. int(opens))\n  closed",
            "  closed",
        )],
        seconds: LIMIT_SECONDS,
    },
    Variant {
        name: "throttle_returns_nothing",
        what: "throttle closes the queue and does not give the message back",
        verb: "throttle",
        shipped: shipped!("throttle"),
        exchanges: &[("redis.call('ZADD', SCHEDULED, math.min(due, now), id)", "")],
        seconds: LIMIT_SECONDS,
    },
    Variant {
        name: "ack_push_stores_lost",
        what: "ack_push stores its messages with a stale token",
        verb: "ack_push",
        shipped: shipped!("ack_push"),
        exchanges: &[(
            "if refusal then return {finish(false), refusal, {}} end",
            "if refusal then for i = 3, #ARGV, 4 do if redis.call('HSETNX', MESSAGES, ARGV[i], ARGV[i + 2]) == 1 then \
             redis.call('ZADD', SCHEDULED, int(now), ARGV[i]) end end return {finish(true), refusal, {}} end",
        )],
        seconds: SECONDS,
    },
    Variant {
        name: "ack_push_stores_some",
        what: "ack_push stores the messages that are not refused",
        verb: "ack_push",
        shipped: shipped!("ack_push"),
        exchanges: &[("refusal = 'REFUSED'", "refusal = nil")],
        seconds: SECONDS,
    },
    Variant {
        name: "snooze_charges",
        what: "snooze counts a failure",
        verb: "snooze",
        shipped: shipped!("snooze"),
        exchanges: &[(
            "or later(id, due, claimed_due, failures, crashes,",
            "or later(id, due, claimed_due, failures + 1, crashes,",
        )],
        seconds: LIMIT_SECONDS,
    },
];

/// Scripts that break schedules or windows: caught by a run on one server with little other traffic.
pub const OF_SCHEDULES: [Variant; 6] = [
    Variant {
        name: "push_forgets_windows",
        what: "push does not look whether a window remembers the id",
        verb: "push",
        shipped: shipped!("push"),
        exchanges: &[("if not asked.reuse and remembered(i) then", "if false then")],
        seconds: SCHEDULE_SECONDS,
    },
    Variant {
        name: "claim_makes_no_tick",
        what: "claim counts a tick and moves the timer, and makes no tick",
        verb: "claim",
        shipped: shipped!("claim"),
        exchanges: &[(
            "  local nominal = choose_fire(s)\n",
            "  local nominal = choose_fire(s)\n  if nominal and now % 4 == 0 then s.made, nominal = s.made + 1, nil end\n",
        )],
        seconds: SCHEDULE_SECONDS,
    },
    Variant {
        name: "claim_leaves_timer",
        what: "claim makes a tick and does not move the timer",
        verb: "claim",
        shipped: shipped!("claim"),
        exchanges: &[(
            "    move_on(s)\n    write_schedule(s)\n",
            "    s = read_schedule(s.name)\n",
        )],
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
        name: "schedule_resets_next",
        what: "schedule moves the next fire of a schedule that it keeps",
        verb: "schedule",
        shipped: shipped!("schedule"),
        exchanges: &[(
            "  if s.same then\n",
            "  if s.same then\n    if changed and old.state == 'active' then\n      remove_timer(old) old.next = s.next write_schedule(old) place_timer(old)\n    end\n",
        )],
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
];

/// The length of a run that catches a script that breaks schedules, in seconds.
const SCHEDULE_SECONDS: u64 = 6;

/// The length of a run that catches a script that breaks a limit, in seconds. Those limits bind all
/// the time.
const LIMIT_SECONDS: u64 = 8;

/// What compares the epoch of a call with that of a partition.
const FENCE: &str = "if known ~= epoch then";

/// Scripts that break the map of a queue's partitions or its fence: caught by a drill on one server.
pub const OF_MAPS: [Variant; 9] = [
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
        exchanges: &[("if held > 0 then", "if false then")],
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
];

impl Variant {
    /// The broken script. Fails if the shipped script has changed since the variant was written.
    pub fn script(&self) -> Result<String> {
        let mut script = self.shipped.to_owned();
        for (text, instead) in self.exchanges {
            let found = script.matches(text).count();
            ensure!(
                found == 1,
                "{}: {text:?} occurs {found} times in lua/dist/{}.lua, not once",
                self.name,
                self.verb
            );
            script = script.replacen(text, instead, 1);
        }
        Ok(script)
    }

    /// Writes the broken script into a folder, for `--scripts`.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let (path, script) = (folder.join(self.verb).with_extension("lua"), self.script()?);
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&path, script))
            .with_context(|| format!("writing {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use dueq_testkit::Server;

    use super::*;

    #[test]
    fn each_variant_differs_from_the_shipped_script_and_is_a_script() -> Result<()> {
        let server = Server::start(&[])?;
        let others = OF_SCHEDULES.into_iter().chain(OF_MAPS);
        for variant in VARIANTS.into_iter().chain(others) {
            let script = variant.script()?;
            assert_ne!(script, variant.shipped, "{}", variant.name);
            let sha = server.command(&["SCRIPT", "LOAD", &script])?;
            assert!(
                sha.len() == 40 && !sha.starts_with('-'),
                "{}: {sha}",
                variant.name
            );
        }
        Ok(())
    }

    #[test]
    fn a_variant_without_its_text_is_an_error() {
        let stale = Variant {
            exchanges: &[("no such text", "")],
            ..VARIANTS[0]
        };
        let error = stale.script().expect_err("nothing to exchange").to_string();
        assert!(
            error.contains("ack_any_token") && error.contains("no such text"),
            "{error}"
        );
    }
}

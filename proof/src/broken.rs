//! Broken scripts: each is a shipped script with a few words replaced. A checker that does not
//! catch all of them proves nothing.

macro_rules! shipped {
    ($verb:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../lua/dist/",
            $verb,
            ".lua"
        ))
    };
}

mod maps;
mod moves;
mod programs;
mod schedules;

use std::path::Path;

use anyhow::{Context, Result, ensure};

pub use maps::OF_MAPS;
pub use moves::OF_MOVES;
pub use programs::{Broken, BrokenProgram, OF_HTTP, OF_TOKENS, OF_WORKERS, Program};
pub use schedules::OF_SCHEDULES;

/// A broken script.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    pub name: &'static str,
    /// The fault in it.
    pub what: &'static str,
    /// The name of the script's file in `lua/dist/`, without extension; then its text.
    verb: &'static str,
    shipped: &'static str,
    /// Texts that each occur once in the script, with their replacements.
    exchanges: &'static [(&'static str, &'static str)],
    /// The length of a run that catches the fault, in seconds.
    pub seconds: u64,
}

/// The length of a run for a script that is wrong only now and then.
const SECONDS: u64 = 20;

/// Broken scripts that a run on one server catches.
pub const VARIANTS: [Variant; 19] = [
    Variant {
        name: "ack_any_token",
        what: "ack does not compare the token",
        verb: "ack",
        shipped: shipped!("ack"),
        exchanges: &[
            (
                "local last = claim and #token == 16 and string.find(claim, token, 1, true) == 1 and ",
                "local last = claim and ",
            ),
            (
                "elseif claim and #token == 16 and string.find(claim, token, 1, true) == 1 then",
                "elseif claim then",
            ),
        ],
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
        // With this replacement, the code that follows removes an id that does not exist.
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
            "if crashes == 1 then\n    set_attrs(id, failures, crashes, nil, options, reason)",
            "if crashes == 1 then\n    set_attrs(id, failures, 0, nil, options, reason)",
        )],
        seconds: SECONDS,
    },
    Variant {
        name: "claim_without_lease",
        what: "claim sets no lease",
        verb: "claim",
        shipped: shipped!("claim"),
        exchanges: &[(
            "redis.call('ZADD', LEASES, int(deadline), LEASE_MARK .. token)",
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
        exchanges: &[("if paused or count == 0 or", "if count == 0 or")],
        seconds: SECONDS,
    },
    Variant {
        name: "claim_ignores_closing",
        what: "claim grants before the queue opens",
        verb: "claim",
        shipped: shipped!("claim"),
        exchanges: &[
            (
                "closed and 0 or math.max(0, old_length - 1)",
                "math.max(0, old_length - 1)",
            ),
            (
                "ready < 1 and (closed or old_head > now)",
                "ready < 1 and old_head > now",
            ),
            (
                "if not closed and old_head <= now then",
                "if old_head <= now then",
            ),
        ],
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
        name: "release_charges",
        what: "release counts a crash",
        verb: "release",
        shipped: shipped!("release"),
        exchanges: &[(
            "set_attrs(id, failures, crashes, nil, options, reason)",
            "set_attrs(id, failures, crashes + 1, nil, options, reason)",
        )],
        seconds: LIMIT_SECONDS,
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

/// The length of a run that catches a script which breaks a limit, in seconds. It is short, because
/// these limits bind all the time.
const LIMIT_SECONDS: u64 = 8;

impl Variant {
    /// The text of the broken script. Fails if the shipped script has changed since the variant was
    /// written.
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
    fn each_broken_script_differs_and_compiles() -> Result<()> {
        let server = Server::start(&[])?;
        let others = OF_SCHEDULES.into_iter().chain(OF_TOKENS);
        let others = others.chain(OF_MAPS).chain(OF_MOVES);
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
    fn broken_script_whose_text_is_gone_is_an_error() {
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

//! The items of a call, and whether it changed its queue.

use super::record::{Changed, Expected, Push, Pushed, Settled, Time, What};
use super::ticks::is_dry_run;
use crate::check::message::reads::ReadState;
use crate::check::queue::moves;
use crate::check::queue::order::Change;
use crate::history::{Answer, Call, Verb};

pub(super) fn token_of(token: &str) -> u64 {
    u64::from_str_radix(token, 16).unwrap_or(0)
}

/// The items of a call. The answer adds their results.
pub(super) fn what_of(call: &Call) -> Vec<(&str, What)> {
    match call {
        Call::Push {
            until_ms,
            nonce,
            items,
        } => items
            .iter()
            .map(|item| {
                (
                    item.0.as_str(),
                    What::Push {
                        push: Push::of(item, *until_ms, nonce),
                        verdict: Pushed::Unknown,
                    },
                )
            })
            .collect(),
        Call::Follow { ack, items } => {
            let acked = What::Settle {
                verb: Verb::Ack,
                verdict: Settled::Unknown,
                token: token_of(&ack.1),
                time: Time::default(),
                answered_ms: 0,
            };
            let pushed = items.iter().map(|item| {
                let what = What::Push {
                    push: Push::of(item, 0, ""),
                    verdict: Pushed::Unknown,
                };
                (item.0.as_str(), what)
            });
            std::iter::once((ack.0.as_str(), acked))
                .chain(pushed)
                .collect()
        }
        Call::Settle { verb, items } => items
            .iter()
            .map(|item| {
                let time = match verb {
                    Verb::Retry | Verb::Extend => Time::after(item.2.parse().unwrap_or(0)),
                    Verb::Again | Verb::Snooze => Time::parse(&item.2),
                    _ => Time::default(),
                };
                let token = token_of(&item.1);
                (
                    item.0.as_str(),
                    What::Settle {
                        verb: *verb,
                        verdict: Settled::Unknown,
                        token,
                        time,
                        answered_ms: 0,
                    },
                )
            })
            .collect(),
        Call::Change {
            verb: Verb::Get,
            items,
        } => items
            .iter()
            .map(|item| (item.0.as_str(), What::ReadState(ReadState::default())))
            .collect(),
        Call::Change { verb, items } => items
            .iter()
            .map(|item| {
                let (due, wanted) = item.1.split_once(' ').unwrap_or((&item.1, ""));
                let (time, expected) = match verb {
                    Verb::Reschedule => (Time::parse(due), Expected::parse(wanted)),
                    _ => (Time::default(), Expected::ANY),
                };
                let (verdict, alone) = (Changed::Unknown, items.len() == 1);
                (
                    item.0.as_str(),
                    What::Change {
                        verb: *verb,
                        verdict,
                        time,
                        expected,
                        alone,
                        answered_ms: 0,
                    },
                )
            })
            .collect(),
        Call::Claim { .. } | Call::Depart { .. } | Call::Arrive { .. } | Call::Other { .. } => {
            Vec::new()
        }
    }
}

/// Whether this call made the change that the answer's `seq` counts.
pub(super) fn changes(call: &Call, answer: &Answer) -> Change {
    let one_of = |words: &[&str]| match answer {
        Answer::Items(verdicts) => verdicts
            .iter()
            .any(|verdict| words.contains(&verdict.split(' ').next().unwrap_or_default())),
        _ => false,
    };
    let yes = |yes: bool| if yes { Change::Yes } else { Change::No };
    let perhaps = |perhaps: bool| if perhaps { Change::Perhaps } else { Change::No };
    if let Some(change) = moves::changes(call, answer) {
        return change;
    }
    match (call, answer) {
        (Call::Push { .. }, _) => yes(one_of(&["CREATED", "MOVED"])),
        (Call::Follow { .. }, Answer::Items(words)) => {
            yes(words.first().is_some_and(|word| word == "OK"))
        }
        (Call::Settle { .. }, _) => yes(one_of(&["OK", "SCHEDULED", "DEAD", "DROPPED"])),
        (
            Call::Change {
                verb: Verb::RunNow | Verb::Requeue,
                ..
            },
            _,
        ) => yes(one_of(&["MOVED", "REQUEUED"])),
        // A move by a delay changes nothing if the new due time equals the present one in ms. That
        // happens at most once in a thousand.
        (
            Call::Change {
                verb: Verb::Reschedule,
                items,
            },
            _,
        ) if items.iter().all(|item| item.1.starts_with('+')) => {
            if one_of(&["MOVED"]) {
                Change::Surely
            } else {
                Change::No
            }
        }
        // A repeated cancel, and a move to the present due time, change nothing.
        (Call::Change { .. }, _) => perhaps(one_of(&["CANCELLED", "MOVED"])),
        (
            Call::Claim { .. },
            Answer::Claimed {
                items, deadline_ms, ..
            },
        ) => {
            if items.is_empty() {
                perhaps(*deadline_ms > 0)
            } else {
                Change::Yes
            }
        }
        (Call::Other { verb, .. }, Answer::Claimed { .. }) if verb == "held" => Change::No,
        (Call::Other { verb, args }, Answer::Other(words)) => match verb.as_str() {
            "promote" | "purge" | "requeue" => yes(words.first().is_some_and(|word| word != "0")),
            // A lease without messages ends without being counted.
            "reap" if words.first().is_some_and(|word| word == "0") => Change::Perhaps,
            "reap" => Change::Yes,
            "get" | "peek" | "stats" | "schedules" => Change::No,
            "schedule" if is_dry_run(args) => Change::No,
            "schedule" => yes(words.first().is_some_and(|word| word == "OK")),
            "trigger" => yes(words.iter().any(|word| word.starts_with("CREATED "))),
            "refill" => yes(words.iter().any(|word| word.starts_with("OK "))),
            _ => Change::Perhaps,
        },
        _ => Change::Perhaps,
    }
}

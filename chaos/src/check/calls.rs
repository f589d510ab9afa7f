//! What a call is about, and whether it changed its queue.

use super::order::Change;
use super::record::{Changed, Push, Pushed, Settled, Time, What};
use super::seen::Seen;
use crate::history::{Answer, Call, Verb};

pub(super) fn token_of(token: &str) -> u64 {
    u64::from_str_radix(token, 16).unwrap_or(0)
}

/// Its items, with verdicts that are still to come.
pub(super) fn what_of(call: &Call) -> Vec<(&str, What)> {
    match call {
        Call::Push { until_ms, items } => items
            .iter()
            .map(|item| (item.0.as_str(), What::Push { push: Push::of(item, *until_ms), verdict: Pushed::Unknown }))
            .collect(),
        Call::Settle { verb, items } => items
            .iter()
            .map(|item| {
                let time = match verb {
                    Verb::Retry => Time::after(item.2.parse().unwrap_or(0)),
                    Verb::Again => Time::parse(&item.2),
                    _ => Time::default(),
                };
                let token = token_of(&item.1);
                (item.0.as_str(), What::Settle { verb: *verb, verdict: Settled::Unknown, token, time, told_ms: 0 })
            })
            .collect(),
        Call::Change { verb: Verb::Get, items } => {
            items.iter().map(|item| (item.0.as_str(), What::Seen(Seen::default()))).collect()
        }
        Call::Change { verb, items } => items
            .iter()
            .map(|item| {
                let time = match verb {
                    Verb::Reschedule => Time::parse(item.1.split(' ').next().unwrap_or_default()),
                    _ => Time::default(),
                };
                (item.0.as_str(), What::Change { verb: *verb, verdict: Changed::Unknown, time, told_ms: 0 })
            })
            .collect(),
        Call::Claim { .. } | Call::Other { .. } => Vec::new(),
    }
}

/// Whether this call made the change that its `seq` counts.
pub(super) fn changes(call: &Call, answer: &Answer) -> Change {
    let one_of = |words: &[&str]| match answer {
        Answer::Items(verdicts) => {
            verdicts.iter().any(|verdict| words.contains(&verdict.split(' ').next().unwrap_or_default()))
        }
        _ => false,
    };
    let yes = |yes: bool| if yes { Change::Yes } else { Change::No };
    let perhaps = |perhaps: bool| if perhaps { Change::Perhaps } else { Change::No };
    match (call, answer) {
        (Call::Push { .. }, _) => yes(one_of(&["CREATED", "MOVED"])),
        (Call::Settle { .. }, _) => yes(one_of(&["OK", "SCHEDULED", "DEAD"])),
        (Call::Change { verb: Verb::RunNow | Verb::Requeue, .. }, _) => yes(one_of(&["MOVED", "REQUEUED"])),
        // A repeated cancel, and a move to where it is, change nothing.
        (Call::Change { .. }, _) => perhaps(one_of(&["CANCELLED", "MOVED"])),
        (Call::Claim { .. }, Answer::Claimed { items, deadline_ms }) => {
            if items.is_empty() {
                perhaps(*deadline_ms > 0)
            } else {
                Change::Yes
            }
        }
        (Call::Other { verb, .. }, Answer::Other(words)) => match verb.as_str() {
            "promote" | "reap" | "purge" | "requeue" => yes(words.first().is_some_and(|word| word != "0")),
            "get" | "peek" | "stats" => Change::No,
            _ => Change::Perhaps,
        },
        _ => Change::Perhaps,
    }
}

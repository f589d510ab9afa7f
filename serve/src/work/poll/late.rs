//! Why each queue was late, minute by minute, as the poller saw it. It is kept in memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::wire::causes::{LateMinute, WaitCause};

const MINUTE_MS: u64 = 60_000;
/// For how long a minute is kept, as in the history of a queue.
const KEPT_MS: u64 = 60 * MINUTE_MS;
/// The most queues whose late minutes are kept: those that were late last.
const MAX_QUEUES: usize = 1_000;

/// The late minutes of a queue, by their begin.
type Minutes = BTreeMap<u64, LateSeen>;

/// What was seen in a minute.
#[derive(Default, Clone)]
struct LateSeen {
    overdue_ms: u64,
    causes: Vec<WaitCause>,
}

/// The late minutes of all queues.
#[derive(Default)]
pub(super) struct LateQueues {
    queues: HashMap<Arc<str>, Minutes>,
    /// The minutes in which no server of Redis answered.
    away: Minutes,
}

impl LateQueues {
    /// The queue is late now, for these causes.
    pub(super) fn saw(
        &mut self,
        name: &Arc<str>,
        now_ms: u64,
        overdue_ms: u64,
        causes: &[WaitCause],
    ) {
        if !self.queues.contains_key(name) && self.queues.len() >= MAX_QUEUES {
            let last = |minutes: &Minutes| minutes.keys().next_back().copied();
            let oldest = self.queues.iter().min_by_key(|(_, minutes)| last(minutes));
            if let Some(oldest) = oldest.map(|(name, _)| Arc::clone(name)) {
                self.queues.remove(&oldest);
            }
        }
        let minutes = self.queues.entry(Arc::clone(name)).or_default();
        add(minutes, now_ms, overdue_ms, causes);
    }

    /// The queue does not exist.
    pub(super) fn forget(&mut self, name: &str) {
        self.queues.remove(name);
    }

    /// Redis does not answer now.
    pub(super) fn saw_no_answer(&mut self, now_ms: u64) {
        add(&mut self.away, now_ms, 0, &[WaitCause::Unread]);
    }

    /// The late minutes of the last hour, the earliest first.
    pub(super) fn of(&self, name: &str, now_ms: u64) -> Vec<LateMinute> {
        let mut minutes = self.away.clone();
        for (start_ms, seen) in self.queues.get(name).into_iter().flatten() {
            add(&mut minutes, *start_ms, seen.overdue_ms, &seen.causes);
        }
        let kept = minutes.split_off(&begin(now_ms));
        let kept = kept.into_iter().map(|(start_ms, seen)| LateMinute {
            start_ms,
            overdue_ms: seen.overdue_ms,
            causes: seen.causes,
        });
        kept.collect()
    }
}

/// The begin of the earliest minute that is kept.
fn begin(now_ms: u64) -> u64 {
    (now_ms / MINUTE_MS * MINUTE_MS + MINUTE_MS).saturating_sub(KEPT_MS)
}

fn add(minutes: &mut Minutes, at_ms: u64, overdue_ms: u64, causes: &[WaitCause]) {
    let seen = minutes.entry(at_ms / MINUTE_MS * MINUTE_MS).or_default();
    seen.overdue_ms = seen.overdue_ms.max(overdue_ms);
    seen.causes.extend(causes);
    seen.causes.sort_unstable();
    seen.causes.dedup();
    let first = begin(at_ms);
    while minutes.first_key_value().is_some_and(|(at, _)| *at < first) {
        minutes.pop_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000 * MINUTE_MS + 7_000;

    fn shown(minutes: &[LateMinute]) -> Vec<(u64, u64, &[WaitCause])> {
        let minutes = minutes.iter();
        minutes
            .map(|minute| {
                let minutes_ago = (NOW - 7_000 - minute.start_ms) / MINUTE_MS;
                (minutes_ago, minute.overdue_ms, &*minute.causes)
            })
            .collect()
    }

    #[test]
    fn minute_has_all_its_causes_and_its_greatest_delay() {
        let (mut late, name) = (LateQueues::default(), Arc::from("orders"));
        late.saw(&name, NOW - 61 * MINUTE_MS, 3_000, &[WaitCause::Full]);
        late.saw(&name, NOW - 59 * MINUTE_MS, 3_000, &[WaitCause::Rate]);
        late.saw(&name, NOW - 2 * MINUTE_MS, 9_000, &[WaitCause::Busy]);
        late.saw(&name, NOW - 2 * MINUTE_MS, 4_000, &[WaitCause::Paused]);
        late.saw(&name, NOW - 2 * MINUTE_MS, 4_000, &[WaitCause::Busy]);
        late.saw_no_answer(NOW - 2 * MINUTE_MS);
        late.saw_no_answer(NOW);
        let minutes = late.of("orders", NOW);
        assert_eq!(
            shown(&minutes),
            [
                (59, 3_000, &[WaitCause::Rate][..]),
                (
                    2,
                    9_000,
                    &[WaitCause::Paused, WaitCause::Busy, WaitCause::Unread]
                ),
                (0, 0, &[WaitCause::Unread]),
            ]
        );
        assert_eq!(late.of("other", NOW).len(), 2, "Redis was away for all");
        assert!(late.of("orders", NOW + KEPT_MS).is_empty());
    }

    #[test]
    fn queues_and_minutes_that_are_kept_are_bounded() {
        let mut late = LateQueues::default();
        for number in 0..=MAX_QUEUES as u64 {
            let name = Arc::from(format!("q{number}"));
            late.saw(
                &name,
                NOW + number.min(1) * MINUTE_MS,
                3_000,
                &[WaitCause::Busy],
            );
        }
        assert_eq!(late.queues.len(), MAX_QUEUES);
        assert!(!late.queues.contains_key("q0"), "it was late first");
        let name = Arc::from("q1");
        for minute in 0..200 {
            late.saw(&name, NOW + minute * MINUTE_MS, 3_000, &[WaitCause::Busy]);
        }
        assert_eq!(late.queues["q1"].len(), 60);
    }
}

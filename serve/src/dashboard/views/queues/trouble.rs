//! The trouble of a queue now and in the last ten minutes, by which the list is sorted.

use std::cmp::Reverse;

use crate::wire::queues::Listed;
use crate::work::poll::{Lately, Recent};

/// A queue is in trouble if a message is overdue by more than this: a live worker takes it within
/// milliseconds.
const OVERDUE_MS: u64 = 1_000;
/// A queue was in trouble if of 100 messages of the last ten minutes one was later than this.
const LATE_MS: u64 = 5_000;

/// The trouble of a queue. The variants are in order of badness, the worst first. Their numbers are
/// powers of two, so that rows do not change places with each refresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trouble {
    Unreadable,
    /// Messages are, or were, late by 2^N ms: those that are late now sort first, then by time.
    Late(WhenLate, Reverse<u32>),
    /// 2^N messages died, or crashed their handlers.
    Failing(Reverse<u32>),
    Paused,
    Dead,
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WhenLate {
    Now,
    Lately,
}

impl Trouble {
    /// `recent` is `None` if it was not read yet.
    pub(super) fn of(queue: &Listed, recent: Option<&Recent>) -> Self {
        let Some(counts) = queue.counts.as_ref().filter(|_| queue.error.is_none()) else {
            return match queue.error {
                Some(_) => Self::Unreadable,
                None => Self::None, // the counts are not read yet
            };
        };
        let recent = recent.copied().unwrap_or_default();
        let now_ms = Some(counts.overdue_ms).filter(|ms| *ms > OVERDUE_MS);
        let past_ms = recent.p99_us.map(|us| us / 1_000);
        let past_ms = past_ms.filter(|ms| *ms > LATE_MS);
        let failed = recent.died.saturating_add(recent.crashed);
        match (now_ms, past_ms, failed) {
            (Some(ms), ..) => Self::Late(WhenLate::Now, Reverse(ms.ilog2())),
            (None, Some(ms), _) => Self::Late(WhenLate::Lately, Reverse(ms.ilog2())),
            (None, None, 1..) => Self::Failing(Reverse(failed.ilog2())),
            _ if counts.paused => Self::Paused,
            _ if counts.dead > 0 => Self::Dead,
            _ => Self::None,
        }
    }

    pub(super) fn is_late_now(self) -> bool {
        matches!(self, Self::Late(WhenLate::Now, _))
    }

    pub(super) fn was_late(self) -> bool {
        matches!(self, Self::Late(WhenLate::Lately, _))
    }

    /// The CSS class of the row.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Unreadable | Self::Late(WhenLate::Now, _) => "trouble",
            Self::Late(WhenLate::Lately, _) | Self::Failing(_) => "trouble past",
            Self::Paused | Self::Dead | Self::None => "",
        }
    }
}

/// Whether the queue is empty, and nothing has happened in the last ten minutes as far as it is known.
pub(super) fn is_idle(queue: &Listed, lately: Option<&Lately>) -> bool {
    let is_quiet = lately.is_none_or(|lately| lately.recent.events == 0);
    let Some(counts) = queue.counts.as_ref().filter(|_| queue.error.is_none()) else {
        return false;
    };
    let held = [counts.scheduled, counts.ready, counts.leased, counts.dead];
    is_quiet && !counts.paused && counts.schedules == 0 && held == [0; 4]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::queues::Counts;

    fn listed(change: impl FnOnce(&mut Counts)) -> Listed {
        let mut counts = Counts::default();
        change(&mut counts);
        Listed {
            counts: Some(counts),
            ..Listed::default()
        }
    }

    #[test]
    fn trouble_of_now_comes_before_that_of_the_last_minutes() {
        let recent = |p99_ms: u64, died, crashed| Recent {
            p99_us: Some(p99_ms * 1_000),
            died,
            crashed,
            events: 1,
        };
        let calm = recent(1, 0, 0);
        let all = [
            (
                Listed {
                    error: Some("WRONGTYPE".to_owned()),
                    ..Listed::default()
                },
                calm,
            ),
            (
                listed(|counts| (counts.overdue_ms, counts.paused) = (60_000, true)),
                calm,
            ),
            (listed(|counts| counts.overdue_ms = 1_001), calm),
            (listed(|_| {}), recent(33_500, 9, 9)),
            (listed(|_| {}), recent(5_000, 417, 3)),
            (listed(|_| {}), recent(1, 0, 1)),
            (
                listed(|counts| (counts.paused, counts.dead) = (true, 9)),
                calm,
            ),
            (listed(|counts| counts.dead = 1), calm),
            (listed(|counts| counts.overdue_ms = 1_000), calm),
        ];
        let ranked = all.map(|(listed, recent)| Trouble::of(&listed, Some(&recent)));
        assert!(
            ranked.is_sorted() && ranked.windows(2).all(|pair| pair[0] != pair[1]),
            "{ranked:?}"
        );
        assert!(ranked[2].is_late_now() && ranked[3].was_late());
        let near = |ms| Trouble::of(&listed(|counts| counts.overdue_ms = ms), None);
        assert_eq!(near(70_000), near(80_000), "rows do not change places");
    }

    #[test]
    fn only_an_empty_queue_without_events_is_idle() {
        let quiet = Lately::default();
        assert!(is_idle(&listed(|counts| counts.nodes = 3), Some(&quiet)));
        assert!(is_idle(&listed(|_| {}), None));
        let mut busy = Lately::default();
        busy.recent.events = 1;
        assert!(!is_idle(&listed(|_| {}), Some(&busy)));
        for change in [
            |counts: &mut Counts| counts.scheduled = 1,
            |counts: &mut Counts| counts.dead = 1,
            |counts: &mut Counts| counts.paused = true,
            |counts: &mut Counts| counts.schedules = 1,
        ] {
            assert!(!is_idle(&listed(change), Some(&quiet)));
        }
        assert!(!is_idle(&Listed::default(), None), "it was not read yet");
    }
}

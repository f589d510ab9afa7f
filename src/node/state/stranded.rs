//! Decides when a node ends a batch of messages that nobody moves any more. Pure.

use std::time::{Duration, Instant};

/// For how long a leader sees the same batch on its way before it ends it. What departs is due in 5 s
/// at the earliest, so even a message whose mover dies is back before it is due. Ending a batch that
/// somebody still moves is harmless.
const LIMIT: Duration = Duration::from_millis(2_500);

/// What a node knows about the batch that is on its way from one partition.
#[derive(Debug, Default)]
pub(crate) struct StrandedBatch {
    /// Its number, and when this node saw it first.
    seen: Option<(u64, Instant)>,
    is_ending: bool,
}

impl StrandedBatch {
    /// Which batch to end after a beat that reports `moving`, the number of the batch on its way.
    pub(crate) fn wanted(
        &mut self,
        is_leader: bool,
        moving: Option<u64>,
        now: Instant,
    ) -> Option<u64> {
        let number = moving.filter(|_| is_leader);
        self.seen = match (number, self.seen) {
            (Some(number), Some(seen)) if seen.0 == number => Some(seen),
            (number, _) => number.map(|number| (number, now)),
        };
        let (number, since) = self.seen?;
        let is_due = !self.is_ending && now.duration_since(since) >= LIMIT;
        self.is_ending |= is_due;
        is_due.then_some(number)
    }

    pub(crate) fn ended(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leader_ends_a_batch_that_it_has_seen_for_some_time() {
        let (mut state, start) = (StrandedBatch::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(state.wanted(true, None, at(0)), None);
        assert_eq!(state.wanted(false, Some(7), at(0)), None);
        assert_eq!(state.wanted(true, Some(7), at(3_000)), None, "new to it");
        assert_eq!(state.wanted(true, Some(7), at(5_499)), None);
        assert_eq!(state.wanted(true, Some(8), at(5_500)), None, "another one");
        assert_eq!(state.wanted(true, Some(8), at(8_000)), Some(8));
        assert_eq!(state.wanted(true, Some(8), at(9_000)), None, "in flight");
        state.ended();
        assert_eq!(state.wanted(true, Some(8), at(9_001)), None, "a pause");
        assert_eq!(state.wanted(true, Some(8), at(11_501)), Some(8));
    }
}

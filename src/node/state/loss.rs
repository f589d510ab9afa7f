//! Decides when a node reports that the store lost a partition. Pure.

use std::time::{Duration, Instant};

/// For how long a partition that is not the home may be absent: a change of the partitions may have
/// removed it. The node learns the new map meanwhile, and leaves the partition.
const REMOVAL_LIMIT: Duration = Duration::from_secs(5);

/// A loss that is not reported yet.
#[derive(Default)]
pub(crate) struct Loss {
    since: Option<Instant>,
}

impl Loss {
    /// A reply showed that the store lost the partition.
    pub(crate) fn lost(&mut self, now: Instant) {
        self.since = Some(now);
    }

    /// Whether a loss is to be reported after a reply that shows whether the partition is absent.
    pub(crate) fn is_news(&mut self, is_home: bool, is_absent: bool, now: Instant) -> bool {
        let is_over = |since: &Instant| now.duration_since(*since) >= REMOVAL_LIMIT;
        let is_certain = is_home || !is_absent || self.since.as_ref().is_some_and(is_over);
        is_certain && self.since.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_partition_is_no_loss_until_some_time_has_passed() {
        let (mut loss, start) = (Loss::default(), Instant::now());
        assert!(!loss.is_news(true, true, start), "nothing was lost");
        loss.lost(start);
        assert!(loss.is_news(true, true, start), "the home is never removed");
        assert!(!loss.is_news(true, true, start), "it was reported");
        loss.lost(start);
        assert!(!loss.is_news(false, true, start));
        assert!(!loss.is_news(false, true, start + REMOVAL_LIMIT / 2));
        assert!(loss.is_news(false, true, start + REMOVAL_LIMIT));
        loss.lost(start);
        assert!(loss.is_news(false, false, start), "it was created again");
    }
}

//! Ends the lease of a delivery when its handler's task ends, however it ends.

use std::sync::Arc;

use crate::node::consumers::lease::ClaimLease;
use crate::node::consumers::slots::PartitionSlots;

/// Held by the task of one delivery until the delivery is settled. Dropping it ends the extensions
/// of the lease and counts the delivery as settled, also if the task panics or is cancelled.
pub(crate) struct HandlerGuard {
    lease: Arc<ClaimLease>,
    /// The index of the delivery in its claim.
    index: usize,
    slots: Arc<PartitionSlots>,
}

impl HandlerGuard {
    pub(crate) fn new(lease: &Arc<ClaimLease>, index: usize, slots: &Arc<PartitionSlots>) -> Self {
        slots.claimed();
        Self {
            lease: Arc::clone(lease),
            index,
            slots: Arc::clone(slots),
        }
    }
}

impl Drop for HandlerGuard {
    fn drop(&mut self) {
        let is_last = self.lease.finish(self.index);
        self.slots.settled(is_last.then_some(self.lease.number));
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::delivery::Delivery;
    use crate::node::PartitionId;
    use crate::node::consumers::slots::HandlerEnds;

    #[test]
    fn a_panicking_task_ends_the_lease_of_its_delivery() {
        let deliveries = vec![Delivery::unconnected(0), Delivery::unconnected(1)];
        let lease = ClaimLease::new(1, deliveries, Instant::now(), Duration::from_secs(30));
        let lease = Arc::new(lease);
        let ends = Arc::<HandlerEnds>::default();
        let slots = PartitionSlots::new(PartitionId(1), &ends);
        let [first, second] = [0, 1].map(|index| HandlerGuard::new(&lease, index, &slots));
        let panicked = catch_unwind(AssertUnwindSafe(move || {
            let _guard = first;
            panic!("in the middle of the task");
        }));
        assert!(panicked.is_err());
        assert!(ends.take_claims().is_empty(), "one delivery is unsettled");
        assert_eq!(slots.unsettled(), 1);
        drop(second);
        assert_eq!(ends.take_claims(), [1]);
    }
}

//! Ends the lease of a delivery when its handler's task ends, however it ends.

use std::sync::Arc;

use crate::node::consumers::lease::ClaimLease;
use crate::node::consumers::slots::{NodeSlots, UnsettledPermit};

/// Held by the task of one delivery until the delivery is settled. Dropping it ends the extensions
/// of the lease and returns the permit, also if the task panics or is cancelled.
pub(crate) struct HandlerGuard {
    lease: Arc<ClaimLease>,
    /// The index of the delivery in its claim.
    index: usize,
    slots: Arc<NodeSlots>,
    _permit: UnsettledPermit,
}

impl HandlerGuard {
    pub(crate) fn new(
        lease: Arc<ClaimLease>,
        index: usize,
        slots: &Arc<NodeSlots>,
        permit: UnsettledPermit,
    ) -> Self {
        Self {
            lease,
            index,
            slots: Arc::clone(slots),
            _permit: permit,
        }
    }
}

impl Drop for HandlerGuard {
    fn drop(&mut self) {
        if self.lease.finish(self.index) {
            self.slots.claim_ended(self.lease.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::delivery::Delivery;
    use crate::node::consumers::slots::PartitionSlots;

    #[test]
    fn a_panicked_task_also_ends_its_lease() {
        let deliveries = vec![Delivery::unconnected(0), Delivery::unconnected(1)];
        let lease = ClaimLease::new(1, deliveries, Instant::now(), Duration::from_secs(30));
        let lease = Arc::new(lease);
        let slots = Arc::<NodeSlots>::default();
        let queue = PartitionSlots::new(&slots);
        let [first, second] = [0, 1].map(|index| {
            let permit = queue.unsettled_permit();
            HandlerGuard::new(Arc::clone(&lease), index, &slots, permit)
        });
        let panicked = catch_unwind(AssertUnwindSafe(move || {
            let _guard = first;
            panic!("in the middle of the task");
        }));
        assert!(panicked.is_err());
        assert!(
            slots.take_ended_claims().is_empty(),
            "one delivery is unsettled"
        );
        assert_eq!(queue.unsettled(), 1);
        drop(second);
        assert_eq!(slots.take_ended_claims(), [1]);
    }
}

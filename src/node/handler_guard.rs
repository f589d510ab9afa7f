//! Ends the lease of a delivery when its handler's task ends, however it ends.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedSender;

use crate::node::claim_lease::ClaimLease;
use crate::node::event::Event;

/// Held by the task of one delivery until the delivery is settled. Dropping it ends the extensions
/// of the lease and returns the permit, also if the task panics or is cancelled.
pub(crate) struct HandlerGuard {
    lease: Arc<ClaimLease>,
    /// The index of the delivery in its claim.
    index: usize,
    events: UnboundedSender<Event>,
    _permit: OwnedSemaphorePermit,
}

impl HandlerGuard {
    /// `permit` is the delivery's permit of [`Slots`](crate::node::slots::Slots).
    pub(crate) fn new(
        lease: Arc<ClaimLease>,
        index: usize,
        events: UnboundedSender<Event>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            lease,
            index,
            events,
            _permit: permit,
        }
    }
}

impl Drop for HandlerGuard {
    fn drop(&mut self) {
        if self.lease.finish(self.index) {
            // The coordinator may have stopped.
            let _ = self.events.send(Event::ClaimEnded(self.lease.number));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::{Duration, Instant};

    use tokio::sync::Semaphore;

    use super::*;
    use crate::delivery::Delivery;

    #[test]
    fn a_panicked_task_also_ends_its_lease() {
        let deliveries = vec![Delivery::unconnected(0), Delivery::unconnected(1)];
        let lease = ClaimLease::new(1, deliveries, Instant::now(), Duration::from_secs(30));
        let lease = Arc::new(lease);
        let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
        let permits = Arc::new(Semaphore::new(2));
        let [first, second] = [0, 1].map(|index| {
            let permit = Arc::clone(&permits).try_acquire_owned().expect("a permit");
            HandlerGuard::new(Arc::clone(&lease), index, sender.clone(), permit)
        });
        let panicked = catch_unwind(AssertUnwindSafe(move || {
            let _guard = first;
            panic!("in the middle of the task");
        }));
        assert!(panicked.is_err());
        assert!(events.try_recv().is_err(), "one delivery is unsettled");
        assert_eq!(permits.available_permits(), 1);
        drop(second);
        assert!(matches!(events.try_recv(), Ok(Event::ClaimEnded(1))));
        assert!(events.try_recv().is_err());
    }
}

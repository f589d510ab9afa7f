//! Counts the handlers and deliveries of a node across threads.
//!
//! Handlers end on the user's runtime, and the coordinator runs on the node's thread. A permit that
//! is dropped therefore only counts. It wakes the coordinator if that is waiting for a handler: a
//! wake-up of another thread costs more than the whole rest of a handler's end.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::batch::BATCH_ITEMS;

/// How many messages one claim takes at most.
pub(crate) const MAX_CLAIM: usize = 256;

/// How many deliveries of a queue may await the reply to their settlement besides those whose
/// handlers run: two full calls, as many as are in flight at once. Handlers then never wait for
/// settlements, and a queue whose settlements stall is claimed no further.
const MAX_UNSETTLED: usize = 2 * BATCH_ITEMS;

/// What the coordinator learns from other threads.
#[derive(Default)]
pub(crate) struct NodeSlots {
    /// Whether the coordinator waits for a permit to return.
    armed: AtomicBool,
    freed: Notify,
    /// The numbers of the claims whose deliveries are all settled.
    ended_claims: Mutex<Vec<u64>>,
}

/// The handlers and deliveries of one queue.
pub(crate) struct QueueSlots {
    node: Arc<NodeSlots>,
    /// Permits returned since the last [`take_ended`](Self::take_ended).
    ended: AtomicUsize,
    /// Deliveries that are claimed and not settled.
    unsettled: AtomicUsize,
}

/// The right to run some handlers. Each is returned when its handler has ended.
pub(crate) struct HandlerPermits {
    slots: Arc<QueueSlots>,
    count: usize,
}

/// Counts one delivery until it is settled or given up.
pub(crate) struct UnsettledPermit(Arc<QueueSlots>);

impl NodeSlots {
    /// Asks for a wake-up when the next permit returns. Look at the permits afterwards: those that
    /// returned before this call wake nobody.
    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    /// Completes when a permit has returned since [`arm`](Self::arm).
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Every delivery of the claim with this number has been settled or given up.
    pub(crate) fn claim_ended(&self, number: u64) {
        self.ended_claims().push(number);
    }

    /// The claims that ended since the last call.
    pub(crate) fn take_ended_claims(&self) -> Vec<u64> {
        std::mem::take(&mut self.ended_claims())
    }

    fn ended_claims(&self) -> std::sync::MutexGuard<'_, Vec<u64>> {
        self.ended_claims
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        if self.armed.load(Ordering::SeqCst) && self.armed.swap(false, Ordering::SeqCst) {
            self.freed.notify_one();
        }
    }
}

impl QueueSlots {
    pub(crate) fn new(node: &Arc<NodeSlots>) -> Arc<Self> {
        Arc::new(Self {
            node: Arc::clone(node),
            ended: AtomicUsize::new(0),
            unsettled: AtomicUsize::new(0),
        })
    }

    /// The permits of a claim.
    pub(crate) fn permits(self: &Arc<Self>, count: usize) -> HandlerPermits {
        HandlerPermits {
            slots: Arc::clone(self),
            count,
        }
    }

    pub(crate) fn unsettled_permit(self: &Arc<Self>) -> UnsettledPermit {
        self.unsettled.fetch_add(1, Ordering::SeqCst);
        UnsettledPermit(Arc::clone(self))
    }

    /// How many handlers have ended, or were not needed, since the last call.
    pub(crate) fn take_ended(&self) -> usize {
        self.ended.swap(0, Ordering::SeqCst)
    }

    /// How many deliveries are not settled.
    pub(crate) fn unsettled(&self) -> usize {
        self.unsettled.load(Ordering::SeqCst)
    }

    /// How many deliveries may be claimed, if the handlers of the queue hold up to `capacity`.
    pub(crate) fn room(&self, capacity: usize) -> usize {
        capacity
            .saturating_add(MAX_UNSETTLED)
            .saturating_sub(self.unsettled())
            .min(MAX_CLAIM)
    }
}

impl HandlerPermits {
    /// For how many handlers.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Takes the permits of another set over.
    pub(crate) fn merge(&mut self, mut other: Self) {
        self.count += std::mem::take(&mut other.count);
    }

    /// Splits off the permit of one handler; `None` if none is left.
    pub(crate) fn split(&mut self) -> Option<Self> {
        self.count = self.count.checked_sub(1)?;
        Some(self.slots.permits(1))
    }
}

impl Drop for HandlerPermits {
    fn drop(&mut self) {
        if self.count > 0 {
            self.slots.ended.fetch_add(self.count, Ordering::SeqCst);
            self.slots.node.changed();
        }
    }
}

impl Drop for UnsettledPermit {
    fn drop(&mut self) {
        self.0.unsettled.fetch_sub(1, Ordering::SeqCst);
        self.0.node.changed();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn is_woken(slots: &NodeSlots) -> bool {
        tokio::time::timeout(Duration::from_millis(1), slots.freed())
            .await
            .is_ok()
    }

    #[tokio::test]
    async fn a_returned_permit_wakes_an_armed_coordinator_once() {
        let node = Arc::new(NodeSlots::default());
        let queue = QueueSlots::new(&node);
        let mut permits = queue.permits(3);
        drop(permits.split());
        assert!(!is_woken(&node).await, "it is not armed");
        node.arm();
        assert_eq!(queue.take_ended(), 1, "the permit returned before");
        drop(permits);
        assert!(is_woken(&node).await);
        assert_eq!(queue.take_ended(), 2);
        drop(queue.permits(1));
        assert!(!is_woken(&node).await, "once for each `arm`");
        node.arm();
        drop(queue.unsettled_permit());
        assert!(is_woken(&node).await, "settled deliveries make room, too");
    }

    #[test]
    fn unsettled_deliveries_stop_further_claims() {
        let queue = QueueSlots::new(&Arc::default());
        assert_eq!(queue.room(1_000), MAX_CLAIM);
        let mut unsettled: Vec<_> = (0..=MAX_UNSETTLED)
            .map(|_| queue.unsettled_permit())
            .collect();
        assert_eq!(queue.room(1), 0);
        unsettled.pop();
        assert_eq!(queue.room(1), 1);
    }

    #[test]
    fn permits_split_one_by_one() {
        let queue = QueueSlots::new(&Arc::default());
        let mut permits = queue.permits(1);
        permits.merge(queue.permits(1));
        assert_eq!(permits.count(), 2);
        let (first, second) = (permits.split(), permits.split());
        assert!(permits.split().is_none());
        drop((first, second, permits));
        assert_eq!(queue.take_ended(), 2, "none is returned twice");
    }
}

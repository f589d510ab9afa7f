//! Counts the handlers and deliveries of a node across threads.
//!
//! Handlers end on the user's runtime, and the coordinator runs on the node's thread. A permit that
//! is dropped therefore only counts. It wakes the coordinator if that is waiting for a handler: a
//! wake-up of another thread costs more than the whole rest of a handler's end.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use crate::node::PartitionId;
use crate::protocol::counts::{MAX_CLAIM, items_of};

/// How many deliveries of a queue may await the reply to their settlement besides those whose
/// handlers run: two full calls, as many as are in flight at once. Handlers then never wait for
/// settlements, and a queue whose settlements stall is claimed no further.
const MAX_UNSETTLED: usize = 2 * items_of("ack");

/// What the coordinator learns of handlers that end on other threads.
#[derive(Default)]
pub(crate) struct HandlerEnds {
    /// Whether the coordinator waits for a permit to return.
    armed: AtomicBool,
    freed: Notify,
    /// The partitions whose permits returned.
    partitions: Mutex<Vec<PartitionId>>,
    /// The numbers of the claims whose deliveries are all settled.
    claims: Mutex<Vec<u64>>,
}

/// The handlers and deliveries of one partition.
pub(crate) struct PartitionSlots {
    id: PartitionId,
    ends: Arc<HandlerEnds>,
    permits: Mutex<Permits>,
    /// Deliveries that are claimed and not settled.
    unsettled: AtomicUsize,
}

struct Permits {
    /// How many have not been returned.
    alive: usize,
    /// Those that returned since the last [`take_ended`](PartitionSlots::take_ended): how many whose
    /// handlers never started, and how many whose handlers ran.
    unused: usize,
    ran: usize,
    /// When the latter returned: the sum of the seconds after `since`.
    seconds: f64,
    since: Instant,
}

/// Handlers of a queue that ended, or that it did not need.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ended {
    /// How many never started.
    pub(crate) unused: usize,
    /// How many have run.
    pub(crate) ran: usize,
    /// How long ago those have ended: the sum in seconds.
    pub(crate) ago: f64,
}

/// The right to run some handlers. Each is returned when its handler has ended.
pub(crate) struct HandlerPermits {
    slots: Arc<PartitionSlots>,
    count: usize,
    /// Whether their handlers have started.
    is_started: bool,
}

impl HandlerEnds {
    /// Asks for a wake-up when the next permit returns. Look at the permits afterwards: those that
    /// returned before this call wake nobody.
    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    /// Completes when a permit has returned since [`arm`](Self::arm).
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// The partitions whose permits returned since the last call.
    pub(crate) fn take_partitions(&self) -> Vec<PartitionId> {
        std::mem::take(&mut lock(&self.partitions))
    }

    /// The claims that ended since the last call.
    pub(crate) fn take_claims(&self) -> Vec<u64> {
        std::mem::take(&mut lock(&self.claims))
    }

    fn changed(&self) {
        if self.armed.load(Ordering::SeqCst) && self.armed.swap(false, Ordering::SeqCst) {
            self.freed.notify_one();
        }
    }
}

impl PartitionSlots {
    pub(crate) fn new(id: PartitionId, ends: &Arc<HandlerEnds>) -> Arc<Self> {
        Arc::new(Self {
            id,
            ends: Arc::clone(ends),
            permits: Mutex::new(Permits {
                alive: 0,
                unused: 0,
                ran: 0,
                seconds: 0.0,
                since: Instant::now(),
            }),
            unsettled: AtomicUsize::new(0),
        })
    }

    /// Permits for a claim, which the node's shares have counted.
    pub(crate) fn permits(self: &Arc<Self>, count: usize) -> HandlerPermits {
        lock(&self.permits).alive += count;
        HandlerPermits {
            slots: Arc::clone(self),
            count,
            is_started: false,
        }
    }

    /// A delivery is claimed.
    pub(crate) fn claimed(&self) {
        self.unsettled.fetch_add(1, Ordering::SeqCst);
    }

    /// A delivery has been settled or given up. It may have been the last one of this claim.
    pub(crate) fn settled(&self, ended_claim: Option<u64>) {
        if let Some(number) = ended_claim {
            lock(&self.ends.claims).push(number);
        }
        self.unsettled.fetch_sub(1, Ordering::SeqCst);
        self.ends.changed();
    }

    /// The handlers that have ended, or were not needed, since the last call.
    pub(crate) fn take_ended(&self, now: Instant) -> Ended {
        let mut permits = lock(&self.permits);
        let until_now = permits.ran as f64 * seconds_between(permits.since, now);
        let ended = Ended {
            unused: std::mem::take(&mut permits.unused),
            ran: std::mem::take(&mut permits.ran),
            ago: until_now - std::mem::take(&mut permits.seconds),
        };
        permits.since = now;
        ended
    }

    /// How many permits there are, with those that returned since the last
    /// [`take_ended`](Self::take_ended).
    pub(crate) fn held(&self) -> usize {
        let permits = lock(&self.permits);
        permits.alive + permits.unused + permits.ran
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

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Below 0 if the first is the later one.
fn seconds_between(first: Instant, second: Instant) -> f64 {
    let after = second.saturating_duration_since(first).as_secs_f64();
    after - first.saturating_duration_since(second).as_secs_f64()
}

impl HandlerPermits {
    /// For how many handlers.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Splits off up to so many permits, whose handlers start now.
    pub(crate) fn start(&mut self, count: usize) -> Self {
        let count = count.min(self.count);
        self.count -= count;
        Self {
            slots: Arc::clone(&self.slots),
            count,
            is_started: true,
        }
    }

    /// Splits off the permit of one handler that starts now; `None` if none is left.
    pub(crate) fn split(&mut self) -> Option<Self> {
        (self.count > 0).then(|| self.start(1))
    }

    /// Returns permits that are not needed. It does not wake the coordinator, which alone calls this:
    /// it would allot them again at once.
    pub(crate) fn put_back(mut self) {
        self.give_back();
    }

    fn give_back(&mut self) {
        let count = std::mem::take(&mut self.count);
        let mut permits = lock(&self.slots.permits);
        let is_first = permits.unused + permits.ran == 0;
        permits.alive -= count;
        if self.is_started {
            permits.ran += count;
            permits.seconds += count as f64 * seconds_between(permits.since, Instant::now());
        } else {
            permits.unused += count;
        }
        drop(permits);
        if is_first {
            lock(&self.slots.ends.partitions).push(self.slots.id);
        }
    }
}

impl Drop for HandlerPermits {
    fn drop(&mut self) {
        if self.count > 0 {
            self.give_back();
            self.slots.ends.changed();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ID: PartitionId = PartitionId(1);

    async fn is_woken(ends: &HandlerEnds) -> bool {
        tokio::time::timeout(Duration::from_millis(1), ends.freed())
            .await
            .is_ok()
    }

    fn ended(queue: &PartitionSlots) -> usize {
        let ended = queue.take_ended(Instant::now());
        ended.unused + ended.ran
    }

    #[tokio::test]
    async fn a_returned_permit_wakes_an_armed_coordinator_once() {
        let node = Arc::new(HandlerEnds::default());
        let queue = PartitionSlots::new(ID, &node);
        let mut permits = queue.permits(3);
        drop(permits.split());
        assert!(!is_woken(&node).await, "it is not armed");
        node.arm();
        assert_eq!(ended(&queue), 1, "the permit returned before");
        drop(permits);
        assert!(is_woken(&node).await);
        assert_eq!(ended(&queue), 2);
        queue.permits(1).put_back();
        drop(queue.permits(1));
        assert!(!is_woken(&node).await, "once for each `arm`");
        node.arm();
        queue.permits(1).put_back();
        assert!(!is_woken(&node).await, "the coordinator returned it itself");
        queue.claimed();
        queue.settled(None);
        assert!(is_woken(&node).await, "settled deliveries make room, too");
        assert!(node.take_partitions().iter().all(|id| *id == ID));
        drop(queue.permits(2));
        assert!(node.take_partitions().is_empty(), "others were not taken");
        queue.take_ended(Instant::now());
        let mut permits = queue.permits(2);
        drop((permits.split(), permits));
        assert_eq!(node.take_partitions(), [ID], "once until they are taken");
    }

    #[test]
    fn unsettled_deliveries_stop_further_claims() {
        let queue = PartitionSlots::new(ID, &Arc::default());
        assert_eq!(queue.room(1_000), MAX_CLAIM);
        (0..=MAX_UNSETTLED).for_each(|_| queue.claimed());
        assert_eq!(queue.room(1), 0);
        queue.settled(None);
        assert_eq!(queue.room(1), 1);
    }

    #[test]
    fn permits_split_one_by_one() {
        let queue = PartitionSlots::new(ID, &Arc::default());
        let mut permits = queue.permits(3);
        let (first, second) = (permits.split(), permits.start(7));
        assert_eq!((second.count(), permits.count()), (2, 0));
        assert!(permits.split().is_none());
        assert_eq!(queue.held(), 3);
        drop((first, second, permits));
        assert_eq!(ended(&queue), 3, "none is returned twice");
        assert_eq!(queue.held(), 0);
    }

    #[test]
    fn handlers_are_charged_until_they_end_not_until_collected() {
        let queue = PartitionSlots::new(ID, &Arc::default());
        let start = Instant::now();
        queue.take_ended(start);
        let mut permits = queue.permits(3);
        drop(permits.start(2));
        let between = start.elapsed().as_secs_f64();
        let ended = queue.take_ended(start + Duration::from_secs(10));
        assert_eq!((ended.ran, ended.unused), (2, 0));
        assert!(
            (20.0 - 2.0 * between..=20.0).contains(&ended.ago),
            "{ended:?}"
        );
        drop(permits.start(1));
        // It ended before the instant of the collection before.
        let ended = queue.take_ended(start + Duration::from_secs(11));
        assert!((10.0..=11.0).contains(&ended.ago), "{ended:?}");
    }
}

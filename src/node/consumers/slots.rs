//! Counts the handlers and deliveries of a node across threads.
//!
//! Handlers end on the user's runtime, and the coordinator runs on the node's thread. So dropping a
//! permit only updates counts. It wakes the coordinator only if that waits for a handler, because
//! waking another thread costs more than all else that a handler's end does.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use crate::node::PartitionId;
use crate::protocol::counts::{MAX_CLAIM, items_of};

/// How many deliveries of a queue may await the reply to their settlement, besides those whose
/// handlers run: two full calls, the most that are in flight at once. So handlers never wait for
/// settlements, and a queue whose settlements stall is not claimed from.
const MAX_UNSETTLED: usize = 2 * items_of("ack");

/// What the coordinator learns of the ends of handlers, which happen on other threads.
#[derive(Default)]
pub(crate) struct HandlerEnds {
    /// Whether the coordinator waits for a permit to return.
    armed: AtomicBool,
    freed: Notify,
    /// The partitions whose permits were returned.
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
    /// How many permits have not been returned.
    alive: usize,
    /// How many permits without a started handler, and how many of ended handlers, were returned
    /// since the last [`take_ended`](PartitionSlots::take_ended).
    unused: usize,
    ran: usize,
    /// When the permits of ended handlers were returned: the sum of the seconds after `since`.
    seconds: f64,
    since: Instant,
}

/// The permits of a queue that were returned: of handlers that ended, and those that it did not
/// need.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ended {
    /// How many permits were returned without a started handler.
    pub(crate) unused: usize,
    /// How many handlers have ended.
    pub(crate) ran: usize,
    /// How long ago these handlers have ended: the sum in seconds.
    pub(crate) ago: f64,
}

/// The right to run some handlers. Each permit returns when its handler has ended.
pub(crate) struct HandlerPermits {
    slots: Arc<PartitionSlots>,
    count: usize,
    /// Whether the handlers of these permits have started.
    is_started: bool,
}

impl HandlerEnds {
    /// Asks for a wake-up when the next permit returns. Check the permits after this call: one that
    /// returned before it causes no wake-up.
    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    /// Completes when a permit has returned since [`arm`](Self::arm).
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Takes the partitions whose permits returned since the last call.
    pub(crate) fn take_partitions(&self) -> Vec<PartitionId> {
        std::mem::take(&mut lock(&self.partitions))
    }

    /// Takes the numbers of the claims that ended since the last call.
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

    /// Makes the permits of a claim. The node's shares have already counted these handlers.
    pub(crate) fn permits(self: &Arc<Self>, count: usize) -> HandlerPermits {
        lock(&self.permits).alive += count;
        HandlerPermits {
            slots: Arc::clone(self),
            count,
            is_started: false,
        }
    }

    /// Counts a delivery as claimed.
    pub(crate) fn claimed(&self) {
        self.unsettled.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a delivery as settled or given up. `ended_claim` is its claim if no other delivery of
    /// that is left.
    pub(crate) fn settled(&self, ended_claim: Option<u64>) {
        if let Some(number) = ended_claim {
            lock(&self.ends.claims).push(number);
        }
        self.unsettled.fetch_sub(1, Ordering::SeqCst);
        self.ends.changed();
    }

    /// Takes the permits that returned since the last call.
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

    /// How many permits are out, plus those that returned since the last
    /// [`take_ended`](Self::take_ended).
    pub(crate) fn held(&self) -> usize {
        let permits = lock(&self.permits);
        permits.alive + permits.unused + permits.ran
    }

    /// How many claimed deliveries are not settled.
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

/// The seconds from `first` to `second`; below 0 if `first` is later.
fn seconds_between(first: Instant, second: Instant) -> f64 {
    let after = second.saturating_duration_since(first).as_secs_f64();
    after - first.saturating_duration_since(second).as_secs_f64()
}

impl HandlerPermits {
    /// How many handlers these permits allow.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Splits off at most `count` permits, whose handlers start now.
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

    /// Returns permits that are not needed. It does not wake the coordinator: only the coordinator
    /// calls this, and it would give the permits out again at once.
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
        // This handler ended before the instant of the last collection.
        let ended = queue.take_ended(start + Duration::from_secs(11));
        assert!((10.0..=11.0).contains(&ended.ago), "{ended:?}");
    }
}

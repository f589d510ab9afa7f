//! A claimed message under a lease.

mod accessors;
mod calls;
mod follow;
mod handle;
mod observers;
mod settle;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use tokio::sync::Notify;

pub(crate) use calls::LeaseCalls;
pub use handle::DeliveryHandle;
use observers::Observers;

use crate::batch::OfClaim;
use crate::partition::Partition;
use crate::protocol::results::claim::Granted;
use crate::telemetry::events::{self, Subject};
use crate::telemetry::metrics::Counter;

/// A claimed message: its payload, and the right to settle it while its lease lasts.
///
/// It is settled once, by [`ack`](Delivery::ack), [`ack_push`](Delivery::ack_push), [`again`](Delivery::again),
/// [`retry`](Delivery::retry), [`release`](Delivery::release), [`bury`](Delivery::bury),
/// [`snooze`](Delivery::snooze) or [`throttle`](Delivery::throttle). A settlement acts only while this claim is the current one. Afterwards it returns `Lost` or `Gone`
/// and changes nothing.
///
/// A message that is not settled becomes available after its lease has expired, and a crash is
/// counted. The queue's workers take expired leases back: while no [`Worker`](crate::Worker) runs
/// in any process, the message stays leased, and can still be settled and extended.
///
/// A worker extends the lease until the delivery is settled, and settles what the handler has not
/// settled. After a claim by hand ([`Queue::claim`](crate::Queue::claim)) the caller does both.
/// Cheap to clone: clones are the same delivery.
#[derive(Clone)]
pub struct Delivery(Arc<Inner>);

struct Inner {
    partition: Arc<Partition>,
    id: Vec<u8>,
    payload: Vec<u8>,
    due_ms: u64,
    attempt: u32,
    crashes: u32,
    is_last_attempt: bool,
    deadline_ms: u64,
    token: [u8; 16],
    trace_parent: Option<String>,
    expires_at_ms: Option<u64>,
    cost: u32,
    snoozes: u32,
    is_tick: bool,
    /// When the handler started; until it starts, when the message was claimed.
    started_us: AtomicU64,
    settled: AtomicBool,
    /// How many settlements of this delivery wait for their results.
    settling: AtomicUsize,
    lost: AtomicBool,
    loss: Notify,
    observers: Observers,
}

impl Delivery {
    pub(crate) fn new(partition: Arc<Partition>, granted: Granted) -> Self {
        Self(Arc::new(Inner {
            partition,
            id: granted.id,
            payload: granted.payload,
            due_ms: granted.due_ms,
            attempt: granted.attempt,
            crashes: granted.crashes,
            is_last_attempt: granted.is_last_attempt,
            deadline_ms: granted.deadline_ms,
            token: granted.token,
            trace_parent: granted.trace_parent,
            expires_at_ms: granted.expires_at_ms,
            cost: granted.cost,
            snoozes: granted.snoozes,
            is_tick: granted.is_tick,
            started_us: AtomicU64::new(u64::try_from(granted.claimed_us).unwrap_or(0)),
            settled: AtomicBool::new(false),
            settling: AtomicUsize::new(0),
            lost: AtomicBool::new(false),
            loss: Notify::new(),
            observers: Observers::default(),
        }))
    }

    /// Records that the handler starts at this instant. The lateness is measured up to here.
    pub(crate) fn begin(&self, at: Instant) {
        let estimate_us = self
            .0
            .partition
            .route()
            .clock()
            .server_us(at)
            .unwrap_or_default();
        // The handler's start is estimated and the claim's time is exact, so the start is set no
        // earlier than the claim.
        self.0
            .started_us
            .fetch_max(u64::try_from(estimate_us).unwrap_or(0), Ordering::Relaxed);
        self.0.partition.late(self.lateness());
        let meters = self.0.partition.meters();
        meters.add_many(Counter::Ticks, self.0.is_tick.into());
    }

    /// Whether the lease is known to be lost. If it is lost, another consumer may have the message,
    /// and settlements have no effect.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|delivery| {
    /// assert!(!delivery.is_lost());
    /// # });
    /// ```
    pub fn is_lost(&self) -> bool {
        self.0.lost.load(Ordering::Acquire)
    }

    /// Completes when the lease is known to be lost, and otherwise never. It is cancel safe, so a
    /// handler can wait for it in a `select` beside its work.
    ///
    /// Only a worker watches the lease, so only its deliveries report the loss without a
    /// settlement.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|delivery| {
    /// tokio::select! {
    ///     () = delivery.lost() => println!("another worker may have {}", delivery.id()),
    ///     () = send_mail() => {
    ///         delivery.ack().await?;
    ///     }
    /// }
    /// # async fn send_mail() {}
    /// # });
    /// ```
    pub async fn lost(&self) {
        // Created before the check below, so that a loss between the two is not missed.
        let loss = self.0.loss.notified();
        if !self.is_lost() {
            loss.await;
        }
    }

    /// Calls `observer` with the outcome when the worker has settled this delivery, or has given it
    /// up. The outcome is that of the span `dueq.handle`, such as `acked`, `retried` or `lost`;
    /// docs/telemetry.md lists all.
    ///
    /// For traces and counts of single settlements; a handler needs the outcome of its own calls
    /// only. The observer runs in the task of the handler, so it must neither block nor panic. It
    /// is dropped without a call if the runtime ends first, or if no worker has the delivery. An
    /// observer that is added after the outcome is never called.
    /// A delivery without observers pays for one uncontended lock.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// use dueq::Delivery;
    /// use std::time::Instant;
    ///
    /// async fn rate(delivery: Delivery) {
    ///     let (id, handled) = (delivery.id().into_owned(), Instant::now());
    ///     delivery.on_settled(move |outcome| println!("{id}: {outcome} after {:?}", handled.elapsed()));
    /// }
    ///
    /// let orders = client.queue("orders")?;
    /// let worker = client.worker().queue(&orders, rate).spawn()?;
    /// # worker.shutdown().await?;
    /// # });
    /// ```
    pub fn on_settled(&self, observer: impl FnOnce(&'static str) + Send + 'static) {
        self.0.observers.add(Box::new(observer));
    }

    /// Tells the observers how the worker settled the delivery.
    pub(crate) fn report(&self, outcome: &'static str) {
        self.0.observers.report(outcome);
    }

    /// A delivery for tests that belongs to no server.
    #[cfg(test)]
    pub(crate) fn unconnected(number: u8) -> Self {
        let (id, token) = (vec![b'a', number], [7; 16]);
        let granted = Granted {
            id,
            payload: Vec::new(),
            due_ms: 1,
            attempt: 1,
            crashes: 0,
            is_last_attempt: false,
            token,
            deadline_ms: 2,
            claimed_us: 1,
            trace_parent: None,
            expires_at_ms: None,
            cost: 1,
            snoozes: 0,
            is_tick: false,
        };
        Self::new(Partition::unconnected(), granted)
    }

    /// The fields that name this delivery in events.
    pub(crate) fn subject(&self) -> Subject<'_> {
        Subject {
            queue: self.0.partition.queue_name(),
            id: &self.0.id,
            attempt: self.0.attempt,
        }
    }

    pub(crate) fn partition(&self) -> &Partition {
        &self.0.partition
    }

    /// Whether a settlement has its result, or the delivery was detached from this process.
    pub(crate) fn is_settled(&self) -> bool {
        self.0.settled.load(Ordering::SeqCst)
    }

    /// Called when an extension finds the lease lost. A settlement that has a result, or waits for
    /// one, reports the loss itself.
    pub(crate) fn found_gone(&self) {
        // The order matters: a settlement marks the delivery as settled before it stops being in
        // flight.
        if !self.is_settling() && !self.is_settled() {
            self.lose("an extension found it gone");
        }
    }

    /// Whether a settlement waits for its result.
    pub(crate) fn is_settling(&self) -> bool {
        self.0.settling.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn settling(&self) -> Settling<'_> {
        self.0.settling.fetch_add(1, Ordering::SeqCst);
        Settling(&self.0.settling)
    }

    /// Records that the codec cannot decode the payload.
    pub(crate) fn undecodable(&self, reason: &str) {
        self.0.partition.meters().add(Counter::Undecodable);
        events::undecodable(self.subject(), reason);
    }

    /// Records that the lease is lost.
    pub(crate) fn lose(&self, why: &'static str) {
        if !self.0.lost.swap(true, Ordering::AcqRel) {
            self.0.partition.meters().add(Counter::LeaseLost);
            events::lease_lost(self.subject(), why);
            self.0.loss.notify_waiters();
        }
    }
}

/// Counts a settlement as waiting for its result until this value is dropped.
pub(crate) struct Settling<'a>(&'a AtomicUsize);

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl OfClaim for Inner {
    fn id(&self) -> &[u8] {
        &self.id
    }

    fn token(&self) -> &[u8] {
        &self.token
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("id", &self.id())
            .field("attempt", &self.0.attempt)
            .field("due_ms", &self.0.due_ms)
            .field("payload_bytes", &self.0.payload.len())
            .finish_non_exhaustive()
    }
}

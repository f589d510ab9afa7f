//! The public settings of a worker. `node::run` does the work.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::delivery::Delivery;
use crate::error::Error;
use crate::model::retry::Retry;
use crate::model::settlement::IntoSettlement;
use crate::node::run::{self as node, Settings};
use crate::partition::Partition;
use crate::protocol::limits;

/// Handles the messages of a queue as they become due: promotes, claims, extends leases, settles, reaps what others lost.
///
/// Made by [`Queue::worker`](crate::Queue::worker). Any number of workers in any number of processes share a queue. What those of a handle do is
/// counted in its [`Queue::metrics`](crate::Queue::metrics); each handler runs in a `tracing` span `dueq.handle`.
///
/// ```no_run
/// # async fn example(orders: dueq::Queue) -> Result<(), dueq::Error> {
/// use dueq::{Delivery, Retry};
/// use std::time::Duration;
///
/// async fn rate(delivery: Delivery) -> anyhow::Result<()> {
///     println!("{} is due", delivery.id());
///     Ok(())
/// }
///
/// orders
///     .worker()
///     .concurrency(64)
///     .lease(Duration::from_secs(30))
///     .retry(Retry::exponential(Duration::from_secs(1), Duration::from_secs(600))?)
///     .run(rate, async { tokio::signal::ctrl_c().await.unwrap_or_default() })
///     .await
/// # }
/// ```
#[derive(Clone)]
pub struct Worker {
    partition: Arc<Partition>,
    concurrency: usize,
    lease: Duration,
    retry: Retry,
    time_limit: Option<Duration>,
    grace: Duration,
}

impl Worker {
    pub(crate) fn new(partition: Arc<Partition>) -> Self {
        Self {
            partition,
            concurrency: 64,
            lease: Duration::from_secs(30),
            retry: Retry::default(),
            time_limit: None,
            grace: Duration::from_secs(30),
        }
    }

    /// How many handlers run at once: at least 1, 64 unless set.
    ///
    /// A worker holds at most 512 deliveries more: those whose handlers have ended and whose settles wait for an answer. If
    /// settles stall, it claims nothing beyond that, and extends the leases of all that it holds.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// How long a delivery is this worker's without a sign of life: 1 ms to a day, 30 s unless set. It is extended at a third
    /// of it, from the claim until the delivery is settled. If the worker dies, its messages come back after it.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The delays after failures; from 1 s doubling to 1 h unless set.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// How long a handler may take; then it is dropped and its delivery retried. No limit unless set. A handler that blocks
    /// its thread cannot be dropped: use `spawn_blocking` for such work.
    #[must_use]
    pub fn time_limit(mut self, time_limit: Duration) -> Self {
        self.time_limit = Some(time_limit);
        self
    }

    /// How long handlers may go on after the stop; then they are dropped and their deliveries released, uncharged. 30 s
    /// unless set.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Handles messages until `stop` completes; then claims no more, lets the handlers finish within the grace time,
    /// releases the rest, and returns when every settle has had its answer.
    ///
    /// The handler gets each delivery and returns nothing, a [`Settlement`](crate::Settlement), or a `Result` of either: `Ok`
    /// acks, `Err` retries. A panic is a failure like any other. What the handler settles itself is left alone. Handlers
    /// must be idempotent: a message is delivered at least once, and again if its lease is lost
    /// ([`Delivery::lost`] tells).
    ///
    /// While Redis is away it keeps trying, for ever, and goes on where it was. Dropping the future stops at once: handlers
    /// are dropped, their deliveries released.
    ///
    /// # Errors
    /// At the start [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) for settings out of range, [`ErrorKind::Denied`](crate::ErrorKind::Denied) and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) as the server says. Later only [`ErrorKind::Internal`](crate::ErrorKind::Internal), if a task of the worker itself
    /// panics: handlers are dropped and their deliveries released before it returns.
    pub async fn run<H, F, S>(self, handler: H, stop: impl Future<Output = ()>) -> Result<(), Error>
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output = S> + Send + 'static,
        S: IntoSettlement + Send + 'static,
    {
        if !(1..=Semaphore::MAX_PERMITS).contains(&self.concurrency) {
            return Err(Error::invalid(format!(
                "concurrency {}: at least one handler is needed",
                self.concurrency
            )));
        }
        limits::lease_ms(self.lease)?;
        let settings = Settings {
            partition: self.partition,
            concurrency: self.concurrency,
            lease: self.lease,
            retry: self.retry,
            time_limit: self.time_limit,
            grace: self.grace,
        };
        // Boxed: rustc's limit on nested futures would otherwise reach callers with deep futures.
        Box::pin(node::run(settings, handler, stop)).await
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("queue", &self.partition.queue_name())
            .field("concurrency", &self.concurrency)
            .field("lease", &self.lease)
            .field("retry", &self.retry)
            .field("time_limit", &self.time_limit)
            .field("grace", &self.grace)
            .finish()
    }
}

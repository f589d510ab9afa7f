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

/// Handles the messages of a queue as they become due. A worker promotes and claims messages, runs
/// their handlers, extends the leases, settles the deliveries, and takes back leases of crashed
/// workers.
///
/// Created by [`Queue::worker`](crate::Queue::worker). Any number of workers in any number of
/// processes may share a queue. [`Queue::metrics`](crate::Queue::metrics) counts the work of all
/// workers of that `Queue` and its clones. Each handler runs in a `tracing` span `dueq.handle`.
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

    /// How many handlers may run at once: at least 1; the default is 64.
    ///
    /// Besides these, a worker holds at most 512 deliveries whose handlers have ended and whose
    /// settlements have no reply yet. If settlements stall, it stops claiming, and extends the
    /// leases of all deliveries that it holds.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// The lease of a delivery: 1 ms to a day; the default is 30 s. The worker extends it every
    /// third of this time, from the claim until the delivery is settled. If the worker dies, its
    /// messages are delivered again when their leases run out.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The delays of retries. The default is 1 s, doubling up to 1 h.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// How long a handler may run; after that it is dropped and its delivery retried. The default
    /// is no limit. A handler that blocks its thread cannot be dropped: use `spawn_blocking` for
    /// such work.
    #[must_use]
    pub fn time_limit(mut self, time_limit: Duration) -> Self {
        self.time_limit = Some(time_limit);
        self
    }

    /// How long handlers may continue after the stop. After that they are dropped, and their
    /// deliveries are released, which counts no attempt. The default is 30 s.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Handles messages until `stop` completes. After that the worker claims no more, lets the
    /// handlers finish within the grace period, releases the other deliveries, and returns when
    /// every settlement has its reply.
    ///
    /// The handler receives each delivery. It returns nothing, a [`Settlement`](crate::Settlement),
    /// or a `Result` of either: `Ok` acks, `Err` retries. A panic counts as a failure, too. If the
    /// handler settles the delivery itself, its result is ignored. Handlers must be idempotent: a
    /// message is delivered at least once, and again if its lease is lost (see [`Delivery::lost`]).
    ///
    /// While Redis is away, the worker keeps trying without a limit, and continues when Redis is
    /// back. Dropping the future stops at once: the handlers are dropped and their deliveries
    /// released.
    ///
    /// # Errors
    /// At the start:
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) for a setting out of range,
    /// [`ErrorKind::Denied`](crate::ErrorKind::Denied) for a missing right, and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for a server that cannot be used.
    ///
    /// Later only [`ErrorKind::Internal`](crate::ErrorKind::Internal), if a task of the worker
    /// itself panics: the handlers are dropped and their deliveries released before it returns.
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

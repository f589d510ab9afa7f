//! The settings of a worker, and of one of its queues.

use std::time::Duration;

use crate::model::retry::Retry;
use crate::worker::builder::Worker;
use crate::worker::share::Share;

/// The settings of a worker that do not depend on its queues.
#[derive(Debug, Clone)]
pub(crate) struct Defaults {
    pub(crate) concurrency: usize,
    pub(crate) lease: Duration,
    pub(crate) retry: Retry,
    pub(crate) time_limit: Option<Duration>,
    pub(crate) grace: Duration,
    pub(crate) parking: Duration,
    pub(crate) strict: Option<Duration>,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            concurrency: 64,
            lease: Duration::from_secs(30),
            retry: Retry::default(),
            time_limit: None,
            grace: Duration::from_secs(30),
            parking: Duration::from_secs(10),
            strict: None,
        }
    }
}

impl Worker {
    /// Sets how many handlers of all queues together may run at once: at least 1; the default is
    /// 64.
    ///
    /// Besides these, a worker holds at most 512 deliveries of a queue whose handlers have ended and
    /// whose settlements have no reply yet. If settlements stall, it stops claiming, and extends the
    /// leases of all deliveries that it holds.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// # async fn rate(_: dueq::Delivery) {}
    /// let orders = client.queue("orders")?;
    /// let worker = client.worker().concurrency(16).queue(&orders, rate).spawn()?;
    /// # worker.shutdown().await?;
    /// # });
    /// ```
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.defaults.concurrency = concurrency;
        self
    }

    /// Sets the lease of a delivery: 1 ms to a day; the default is 30 s. The worker extends it
    /// every third of this time, from the claim until the delivery is settled. If the worker dies,
    /// its messages are delivered again when their leases run out.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// # async fn rate(_: dueq::Delivery) {}
    /// use std::time::Duration;
    ///
    /// let orders = client.queue("orders")?;
    /// let worker = client.worker().lease(Duration::from_secs(5)).queue(&orders, rate).spawn()?;
    /// # worker.shutdown().await?;
    /// # });
    /// ```
    pub fn lease(mut self, lease: Duration) -> Self {
        self.defaults.lease = lease;
        self
    }

    /// Sets the back-off before a retry. The default is 1 s, doubling up to 1 h; jitter takes off
    /// up to half of each delay.
    ///
    /// The number of attempts is not set here, but by
    /// [`Push::max_attempts`](crate::Push::max_attempts) for a message and
    /// [`QueueLimits::max_attempts`](crate::QueueLimits::max_attempts) for a queue. It is 20 by
    /// default.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// # async fn rate(_: dueq::Delivery) {}
    /// use dueq::Retry;
    /// use std::time::Duration;
    ///
    /// let orders = client.queue("orders")?;
    /// let worker = client.worker().retry(Retry::fixed(Duration::from_secs(10))).queue(&orders, rate).spawn()?;
    /// # worker.shutdown().await?;
    /// # });
    /// ```
    pub fn retry(mut self, retry: Retry) -> Self {
        self.defaults.retry = retry;
        self
    }

    /// Sets how long a handler may run, more than 0. A handler that runs longer is dropped, and its
    /// delivery retried. The default is no limit. A handler that blocks its thread cannot be
    /// dropped: use `spawn_blocking` for such work.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// # async fn rate(_: dueq::Delivery) {}
    /// use std::time::Duration;
    ///
    /// let orders = client.queue("orders")?;
    /// let worker = client.worker().time_limit(Duration::from_secs(60)).queue(&orders, rate).spawn()?;
    /// # worker.shutdown().await?;
    /// # });
    /// ```
    pub fn time_limit(mut self, time_limit: Duration) -> Self {
        self.defaults.time_limit = Some(time_limit);
        self
    }

    /// Sets the grace period: how long handlers may continue after the stop. After it they are
    /// dropped, and their deliveries are released, which counts no attempt. The default is 30 s; 0
    /// drops the handlers at the stop.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// # async fn rate(_: dueq::Delivery) {}
    /// use std::time::Duration;
    ///
    /// let orders = client.queue("orders")?;
    /// let worker = client.worker().grace(Duration::from_secs(5)).queue(&orders, rate).spawn()?;
    /// # worker.shutdown().await?;
    /// # });
    /// ```
    pub fn grace(mut self, grace: Duration) -> Self {
        self.defaults.grace = grace;
        self
    }

    /// Makes the order of the queues strict: a free handler goes to the first queue that has due
    /// messages, in the order in which the queues were added. While earlier queues have a backlog,
    /// a later queue waits for `max_wait`; after that time it gets one handler at a time, in turn
    /// with the earlier queues. 0 begins these turns at once.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// # async fn rate(_: dueq::Delivery) {}
    /// use std::time::Duration;
    ///
    /// let (urgent, bulk) = (client.queue("urgent")?, client.queue("bulk")?);
    /// let worker = client
    ///     .worker()
    ///     .strict(Duration::from_secs(10))
    ///     .queue(&urgent, rate)
    ///     .queue(&bulk, rate)
    ///     .spawn()?;
    /// # worker.shutdown().await?;
    /// # });
    /// ```
    pub fn strict(mut self, max_wait: Duration) -> Self {
        self.defaults.strict = Some(max_wait);
        self
    }

    /// Sets for how long the worker may send no beat for a *parked* queue: one that a pattern
    /// found, or one beyond the first 64, in which nothing is ready, leased or due within 2 s. If a
    /// notice is lost, a message of such a queue can be late by this time. The default is 10 s; 1 s
    /// to 60 s, or 0 to park no queue.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// # async fn rate(_: dueq::Delivery) {}
    /// use std::time::Duration;
    ///
    /// let mails = client.pattern("mail-*")?;
    /// let worker = client.worker().parking(Duration::from_secs(5)).pattern(&mails, rate).spawn()?;
    /// # worker.shutdown().await?;
    /// # });
    /// ```
    pub fn parking(mut self, parking: Duration) -> Self {
        self.defaults.parking = parking;
        self
    }
}

/// The settings of one queue of a [`Worker`](crate::Worker). For a setting that is not set here,
/// the worker's applies.
///
/// ```
/// # dueq_testkit::doctest!(|client| {
/// use dueq::{Delivery, QueueSettings, Share};
/// use std::time::Duration;
///
/// async fn rate(_: Delivery) {}
/// async fn report(_: Delivery) {}
///
/// let (orders, reports) = (client.queue("orders")?, client.queue("reports")?);
/// let slow = QueueSettings::new()
///     .share(Share::weight(1).max(4))
///     .time_limit(Duration::from_secs(600));
/// let worker = client
///     .worker()
///     .queue_with(&orders, Share::weight(6), rate)
///     .queue_with(&reports, slow, report)
///     .spawn()?;
/// # worker.shutdown().await?;
/// # });
/// ```
#[derive(Debug, Clone, Default)]
pub struct QueueSettings {
    pub(crate) share: Share,
    pub(crate) lease: Option<Duration>,
    pub(crate) retry: Option<Retry>,
    pub(crate) time_limit: Option<Duration>,
}

impl QueueSettings {
    /// Settings that change nothing: those of the worker and the default [`Share`] apply.
    ///
    /// ```
    /// let settings = dueq::QueueSettings::new();
    /// # let _ = settings;
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what the queue may have of the worker's handlers.
    ///
    /// ```
    /// use dueq::{QueueSettings, Share};
    /// let settings = QueueSettings::new().share(Share::weight(6));
    /// # let _ = settings;
    /// ```
    #[must_use]
    pub fn share(mut self, share: Share) -> Self {
        self.share = share;
        self
    }

    /// Sets the lease of a delivery of this queue: 1 ms to a day.
    ///
    /// ```
    /// use std::time::Duration;
    /// let settings = dueq::QueueSettings::new().lease(Duration::from_secs(5));
    /// # let _ = settings;
    /// ```
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets the back-off before a retry in this queue, as [`Worker::retry`] does. It does not set
    /// the number of attempts.
    ///
    /// ```
    /// use dueq::{QueueSettings, Retry};
    /// use std::time::Duration;
    /// let settings = QueueSettings::new().retry(Retry::fixed(Duration::from_secs(10)));
    /// # let _ = settings;
    /// ```
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Sets how long a handler of this queue may run, more than 0.
    ///
    /// ```
    /// use std::time::Duration;
    /// let settings = dueq::QueueSettings::new().time_limit(Duration::from_secs(60));
    /// # let _ = settings;
    /// ```
    #[must_use]
    pub fn time_limit(mut self, time_limit: Duration) -> Self {
        self.time_limit = Some(time_limit);
        self
    }
}

impl From<Share> for QueueSettings {
    fn from(share: Share) -> Self {
        Self::new().share(share)
    }
}

//! The settings of a worker, and of one of its queues.

use std::time::Duration;

use crate::model::retry::Retry;
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

/// The settings of one queue of a [`Worker`](crate::Worker). What is not set is as the worker sets
/// it for all queues.
///
/// ```no_run
/// # async fn example(client: dueq::Client) -> Result<(), dueq::Error> {
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
///     .spawn();
/// # worker.wait().await
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct QueueSettings {
    pub(crate) share: Share,
    pub(crate) lease: Option<Duration>,
    pub(crate) retry: Option<Retry>,
    pub(crate) time_limit: Option<Duration>,
}

impl QueueSettings {
    /// The settings of the worker, and the default [`Share`].
    ///
    /// ```
    /// let settings = dueq::QueueSettings::new();
    /// # let _ = settings;
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What the queue may have of the worker's handlers.
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

    /// The lease of a delivery of this queue: 1 ms to a day.
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

    /// The delays of retries of this queue.
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

    /// How long a handler of this queue may run.
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

//! Changes of the number of partitions.

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;

use crate::error::Error;
use crate::model::codec::Codec;
use crate::model::repartition::RepartitionProgress;
use crate::queue::Queue;
use crate::router::{Conduct, Pace, Router};

/// A change of the number of partitions that runs when it is awaited; made by
/// [`Queue::partition_into`] and [`Queue::abort_repartition`].
#[must_use = "a change of the number of partitions runs when it is awaited"]
pub struct Repartition<'a> {
    router: &'a Router,
    /// The number of partitions; `None` to take a change back.
    count: Option<usize>,
    conduct: Conduct,
}

impl<C: Codec> Queue<C> {
    /// Gives the queue `count` partitions (1 to 256), with its messages, while producers and workers
    /// go on. In a Redis Cluster they are spread evenly over the masters, and each message belongs
    /// to one of them by its id.
    ///
    /// One partition suffices as long as one server does. More partitions make calls smaller, and
    /// order by due time holds within a partition only. About four for each master are a good
    /// number.
    ///
    /// Messages move in batches, but for those that are leased or due within 5 s: these are handled
    /// where they are. So the change takes at least until they are, and usually 13 s until the
    /// partitions have forgotten the calls from before. Meanwhile a call that names an id asks the
    /// old partition of the id and then the new one. A rate or `max_leased` is divided among old and
    /// new partitions.
    ///
    /// If the call fails, its future is dropped or the process ends, the same call goes on where it
    /// was, also in another process. [`abort_repartition`](Queue::abort_repartition) takes the change
    /// back. Messages on their way at that moment, up to 256 of a partition, are put back by a worker
    /// of the queue within 5 s. Without workers they wait until either is called, and calls that
    /// name them fail after 10 s. While a server is away, the call tries again for two minutes, and
    /// goes on with the messages of the others.
    ///
    /// All clients and workers of the queue must be of a release that knows such changes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if `count` is out of range, the
    /// queue has schedules and `count` is not 1, or the rate or `max_leased` is less than `count`.
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if a change to another number runs
    /// or was interrupted, or too few replicas follow a server.
    /// [`ErrorKind::Full`](crate::ErrorKind::Full) if `maxmemory` of a server leaves no room for what
    /// would move to it: an estimate. Then nothing has changed.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// orders.partition_into(12).await?;
    /// assert_eq!(orders.partitions().await?.len(), 12);
    /// # });
    /// ```
    pub fn partition_into(&self, count: usize) -> Repartition<'_> {
        Repartition::new(self.router(), Some(count))
    }

    /// Takes back the change of the number of partitions that runs or was interrupted: messages that
    /// have moved move back. A process that still runs the change fails. If this call is
    /// interrupted, the same call goes on.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if no change runs.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// orders.push("rate it").await?;
    /// let error = orders.abort_repartition().await.unwrap_err();
    /// assert_eq!(error.kind(), dueq::ErrorKind::InvalidInput);
    /// # });
    /// ```
    pub fn abort_repartition(&self) -> Repartition<'_> {
        Repartition::new(self.router(), None)
    }
}

impl<'a> Repartition<'a> {
    fn new(router: &'a Router, count: Option<usize>) -> Self {
        Self {
            router,
            count,
            conduct: Conduct::default(),
        }
    }

    /// Moves messages without rests. Otherwise each partition rests for three times as long as a
    /// step took, so that producers and workers keep most of the servers.
    pub fn without_rests(mut self) -> Self {
        self.conduct.pace = Pace::Open;
        self
    }

    /// Calls this function at each phase, and every half second while messages move.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// let change = orders.partition_into(3);
    /// change.on_progress(|now| println!("{}: {} left", now.phase.name(), now.left)).await?;
    /// # });
    /// ```
    pub fn on_progress(
        mut self,
        observer: impl Fn(&RepartitionProgress) + Send + Sync + 'static,
    ) -> Self {
        self.conduct.observer = Some(Box::new(observer));
        self
    }
}

impl<'a> IntoFuture for Repartition<'a> {
    type Output = Result<(), Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self {
            router,
            count,
            conduct,
        } = self;
        Box::pin(async move {
            match count {
                Some(count) => router.partition_into(count, &conduct).await,
                None => router.abort_repartition(&conduct).await,
            }
        })
    }
}

impl fmt::Debug for Repartition<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repartition")
            .field("queue", &self.router.queue_name())
            .field("count", &self.count)
            .field("pace", &self.conduct.pace)
            .finish_non_exhaustive()
    }
}

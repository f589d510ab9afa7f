//! Changes of the number of partitions, and moves to another store.

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;

use crate::error::Error;
use crate::model::codec::Codec;
use crate::model::repartition::RepartitionProgress;
use crate::queue::Queue;
use crate::router::{Conduct, Pace, Router};

/// A change of the partitions that runs when it is awaited; made by [`Queue::partition_into`],
/// [`Queue::move_to`] and [`Queue::abort_repartition`].
#[must_use = "a change of the number of partitions runs when it is awaited"]
pub struct Repartition<'a> {
    router: &'a Router,
    change: Change,
    conduct: Conduct,
}

#[derive(Debug)]
enum Change {
    /// To this number of partitions.
    Into(usize),
    /// To the store at this URL, into this number of partitions.
    To(String, Option<usize>),
    /// Back to what was before.
    Back,
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
        Repartition::new(self.router(), Change::Into(count))
    }

    /// Moves the queue to the store at `url`, with its messages, while producers and workers go on: to
    /// one Redis server, to the service of Sentinels, or into a cluster. There it gets `partitions`,
    /// by default one. It moves as [`partition_into`](Queue::partition_into) does, and goes on, or back,
    /// in the same way.
    ///
    /// Both stores name each other by URLs without user and password: that of this client, and `url`.
    /// Clients of either store use their own user, password and certificates in both. Those of this
    /// library follow the queue. After the end the home in this store says where the queue is, until
    /// the queue is deleted here.
    ///
    /// A worker serves only the store that it is connected to. So first start workers there, and stop
    /// those here after the end.
    ///
    /// What comes along: messages in every state, windows, how messages ended, limits, the rate and the
    /// pause. The [history](Queue::history) stays.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if this is the store that the queue is
    /// in, the queue has messages there already, has schedules, or does not exist; if the clocks differ
    /// by more than a second; or if one URL means the local machine and the other does not.
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the other store cannot be used, or
    /// another change runs. Also those of `partition_into`. Then nothing has changed.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// let moved = orders.move_to("redis+cluster://10.0.0.1,10.0.0.2", Some(12)).await;
    /// // This example's server has a local address, which clients of the cluster could not reach.
    /// assert_eq!(moved.unwrap_err().kind(), dueq::ErrorKind::InvalidInput);
    /// # });
    /// ```
    pub fn move_to(&self, url: &str, partitions: Option<usize>) -> Repartition<'_> {
        Repartition::new(self.router(), Change::To(url.to_owned(), partitions))
    }

    /// Takes back the change of the number of partitions, or the move to another store, that runs or
    /// was interrupted: messages that have moved move back. A process that still runs the change fails. If this call is
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
        Repartition::new(self.router(), Change::Back)
    }
}

impl<'a> Repartition<'a> {
    fn new(router: &'a Router, change: Change) -> Self {
        Self {
            router,
            change,
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
            change,
            conduct,
        } = self;
        Box::pin(async move {
            match change {
                Change::Into(count) => router.partition_into(count, &conduct).await,
                Change::To(url, count) => router.move_to(&url, count, &conduct).await,
                Change::Back => router.abort_repartition(&conduct).await,
            }
        })
    }
}

impl fmt::Debug for Repartition<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repartition")
            .field("queue", &self.router.queue_name())
            .field("change", &self.change)
            .field("pace", &self.conduct.pace)
            .finish_non_exhaustive()
    }
}

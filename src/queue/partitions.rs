//! The partitions of a queue: how many it has, and where they are.

use crate::error::Error;
use crate::model::codec::Codec;
use crate::model::partition_info::PartitionInfo;
use crate::protocol::limits;
use crate::protocol::results::inspect;
use crate::protocol::slot::slot_of;
use crate::protocol::verbs::Verb;
use crate::queue::Queue;
use crate::router::Routing;
use crate::server::patience::Repeat;

impl<C: Codec> Queue<C> {
    /// Gives a queue that is new or empty `count` partitions (1 to 256). In a Redis Cluster they are
    /// spread evenly over the masters, and each message belongs to one of them by its id.
    ///
    /// A queue of one partition suffices until one server does not. More partitions make calls
    /// smaller, and order by due time holds within a partition only. About four for each master are
    /// a good number.
    ///
    /// Calls that name ids wait while the partitions change. The call waits up to 15 s until the
    /// queue has forgotten the ids that ended last. If it fails halfway, or the process ends, the
    /// same call completes the change; until then pushes to the queue are refused.
    ///
    /// All clients and workers of the queue must be of a release that knows partitions: older ones
    /// are refused with [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if `count` is out of range, or
    /// the queue holds a message in any state. Then nothing has changed.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// orders.partition_into(12).await?;
    /// assert_eq!(orders.partitions().await?.len(), 12);
    /// # });
    /// ```
    pub async fn partition_into(&self, count: usize) -> Result<(), Error> {
        // Boxed: keeps the futures of callers shallow, as rustc limits their depth.
        Box::pin(self.router().partition_into(count)).await
    }

    /// The partitions of the queue, in the order of their indexes, with what each holds. Reads the
    /// map first, and waits up to 10 s while it changes.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// for partition in orders.partitions().await? {
    ///     println!("{} on {}: {}", partition.index, partition.server, partition.stats.scheduled);
    /// }
    /// # });
    /// ```
    pub async fn partitions(&self) -> Result<Vec<PartitionInfo>, Error> {
        let router = self.router();
        router.refresh(&router.current()).await?;
        let partitions = Routing::new(router).settled().await?;
        let mut found = Vec::new();
        for partition in partitions.list() {
            let mut reply = partition.call(Verb::Stats, &[], Repeat::Harmless).await?;
            found.push(PartitionInfo {
                index: partition.index(),
                tag: partition.tag().to_string(),
                slot: slot_of(partition.keys().meta()),
                server: partition.route().link().await?.connector().address(),
                stats: inspect::stats(&mut reply)?,
            });
        }
        Ok(found)
    }

    /// The names of the ten keys of the partition that this id belongs to, in the order in which
    /// every script takes them. Reads the map first, and waits up to 10 s while it changes.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// assert_eq!(orders.keys_of("order:42").await?, orders.keys());
    /// # });
    /// ```
    pub async fn keys_of(&self, id: impl AsRef<[u8]>) -> Result<Vec<String>, Error> {
        limits::check_id(id.as_ref())?;
        let router = self.router();
        router.refresh(&router.current()).await?;
        let partition = Routing::new(router).partition(id.as_ref()).await?;
        Ok(partition.keys().vector.to_vec())
    }
}

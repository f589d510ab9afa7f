//! A named queue: the calls of producers and operators, and claims by hand.

mod administer;
mod bulk;
mod change;
mod claim;
mod declare;
mod delete;
mod end;
mod held;
mod inspect;
mod list;
mod overview;
mod produce;
mod push;
mod remote;
mod repartition;
mod schedule;
mod schedules;
mod steps;
mod whole;

use std::fmt;
use std::sync::{Arc, Weak};

pub(crate) use claim::{refuse_held, refuse_other_grants};
pub use held::HeldClaim;
pub use push::Push;
pub use remote::RemoteDelivery;
pub use repartition::Repartition;
pub use schedule::ScheduleHandle;
pub use schedules::ScheduleSet;
pub use steps::{BulkSteps, Picks};

use crate::batch::{Answered, BatchVerb, Batcher, Item, allows_new_try};
use crate::error::{Applied, Error, ErrorKind};
use crate::model::codec::{Codec, RawBytes};
use crate::model::durability::Durability;
use crate::partition::{Partition, Producers, WholeCall, WholeQueue};
use crate::protocol::results::produce::PushResult;
use crate::router::{Router, Routing, Step};
use crate::telemetry::metrics::Metrics;

/// A named delay queue. Cheap to clone; clones share their connections, and their calls share
/// batches.
///
/// Calls that arrive while one is in flight are sent as one batch. While Redis is away, the library
/// repeats calls for 10 s, each at least once, if that is safe. Other calls fail with
/// [`Applied::Unknown`](crate::Applied::Unknown).
///
/// At most 4,096 calls of a verb, or 16 MiB, wait for replies at once. A further call first waits
/// for room, without a time limit, and its 10 s begin then. A call whose future is dropped may or
/// may not take effect.
#[derive(Clone)]
pub struct Queue<C = RawBytes> {
    router: Arc<Router>,
    durability: Durability,
    codec: C,
}

impl<C: Codec> Queue<C> {
    pub(crate) fn new(router: Arc<Router>, durability: Durability, codec: C) -> Self {
        link(&router);
        Self {
            router,
            durability,
            codec,
        }
    }

    /// The name of the queue.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// assert_eq!(client.queue("orders")?.name(), "orders");
    /// # });
    /// ```
    pub fn name(&self) -> &str {
        self.router.queue_name()
    }

    /// Returns a handle of this queue that uses this [`Durability`] for messages without their own.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::Durability;
    /// use std::time::Duration;
    ///
    /// let replicas = 1;
    /// let orders = orders.durability(Durability::Replicated { replicas, timeout: Duration::from_secs(1) });
    /// // The private server of this example has no replica:
    /// let error = orders.push("rate it").await.unwrap_err();
    /// assert_eq!(error.kind(), dueq::ErrorKind::Unconfirmed);
    /// # });
    /// ```
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Counts of what this handle, its clones and their workers have done: see [`Metrics`]. Makes
    /// no call.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::metrics::Counter;
    ///
    /// orders.push("rate it").await?;
    /// assert_eq!(orders.metrics().count(Counter::PushCreated), 1);
    /// # });
    /// ```
    pub fn metrics(&self) -> Metrics {
        self.router.meters().snapshot()
    }

    /// The names of the ten keys, in the order in which every script takes them: for other clients
    /// that call the scripts. They belong to the home. A queue with more partitions has more keys:
    /// see [`keys_of`](Queue::keys_of).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// assert_eq!(orders.keys().len(), 10);
    /// assert_eq!(orders.keys()[0], "dueq:{orders}:scheduled");
    /// # });
    /// ```
    pub fn keys(&self) -> &[String] {
        &self.router.home_keys().vector
    }

    pub(crate) fn codec(&self) -> &C {
        &self.codec
    }

    pub(crate) fn router(&self) -> &Arc<Router> {
        &self.router
    }
}

impl<C: Codec> fmt::Debug for Queue<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

/// Sends an item to the partition of its id, in a batch with other waiting items. Returns the
/// result of this item.
pub(super) async fn submit<V: BatchVerb>(
    routing: &mut Routing<'_>,
    durability: Durability,
    batcher: &impl Fn(&Producers) -> &Batcher<V>,
    mut item: Item,
) -> Result<V::Output, Error> {
    let mut step = Step::Old;
    loop {
        let partitions = routing.partitions().await?;
        let partition = partitions.of_id(item.id(), &step);
        let producers = partition.producers(durability).await?;
        (item, step) = match batcher(&producers).submit_routed(item).await {
            Answered::Result(result) => return result,
            Answered::Remapped(back, refusal) => {
                let resolved = routing.refused(&[(partition, &refusal)]).await;
                resolved.map_err(|error| error.like(&refusal))?;
                if !allows_new_try(&refusal) {
                    return Err(refusal);
                }
                (back, Step::Old)
            }
            Answered::Moving(back) => {
                routing.moving().await?;
                (back, Step::Old)
            }
            Answered::Away(back, remembered) => match (step, remembered) {
                (Step::Ask(result), _) => {
                    if let Some(count) = V::count(&result) {
                        partition.meters().add(count);
                    }
                    return result;
                }
                (_, Some(result)) => (back, Step::Ask(result)),
                (_, None) => (back, Step::New),
            },
        };
    }
}

/// A queue as its partitions know it.
struct OwnQueue(Weak<Router>);

/// Makes the queue known to its partitions.
fn link(router: &Arc<Router>) {
    router.link(|| Box::new(OwnQueue(Arc::downgrade(router))));
}

impl OwnQueue {
    fn router(&self) -> Result<Arc<Router>, Error> {
        self.0.upgrade().ok_or_else(|| {
            let message = "the partitions of the queue change, and no handle of the queue is left";
            Error::new(ErrorKind::Unavailable, Applied::No, message)
        })
    }
}

impl WholeQueue for OwnQueue {
    fn newer<'a>(
        &'a self,
        partition: &'a Partition,
        refusal: &'a Error,
    ) -> WholeCall<'a, Arc<Partition>> {
        Box::pin(async move {
            let router = self.router()?;
            let mut routing = Routing::new(&router);
            routing.refused(&[(partition, refusal)]).await?;
            let now = routing.partitions().await?;
            // A partition that holds messages is never removed. So if it is gone, the delivery is
            // gone as well, and any partition gives that answer.
            Ok(Arc::clone(
                now.of_tag(partition.tag()).unwrap_or(now.home()),
            ))
        })
    }

    fn push(&self, item: Item) -> WholeCall<'_, PushResult> {
        Box::pin(async move {
            let router = self.router()?;
            let (mut routing, memory) = (Routing::new(&router), Durability::Memory);
            submit(&mut routing, memory, &|to: &Producers| &to.push, item).await
        })
    }
}

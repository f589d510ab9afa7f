//! Claiming by hand.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::delivery::Delivery;
use crate::error::Error;
use crate::model::codec::Codec;
use crate::protocol::limits::{self, MAX_ITEMS};
use crate::queue::Queue;
use crate::server::patience::{Patience, Repeat};

impl<C: Codec> Queue<C> {
    /// Claims up to `count` (1 to 1,000) due messages under a lease (1 ms to a day), without
    /// waiting; none if no message is due. Beside running workers it gets a fair share: the number
    /// of due messages divided by the number of live workers.
    ///
    /// This is the call below [`Queue::worker`]: the caller extends and settles. If the reply is
    /// lost, the library claims again.
    ///
    /// A message that the caller does not settle becomes available after its lease has expired, and
    /// so does a message of a claim whose reply was lost. This needs a running worker of the queue
    /// in some process: only workers take expired leases back. Without one the message stays
    /// leased.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use std::time::Duration;
    ///
    /// orders.push("rate it").id("order:42").await?;
    /// for delivery in orders.claim(10, Duration::from_secs(30)).await? {
    ///     println!("{}: {} bytes", delivery.id(), delivery.payload().len());
    ///     delivery.ack().await?;
    /// }
    /// # assert!(orders.get("order:42").await?.is_none());
    /// # });
    /// ```
    pub async fn claim(&self, count: usize, lease: Duration) -> Result<Vec<Delivery>, Error> {
        if !(1..=MAX_ITEMS).contains(&count) {
            return Err(Error::invalid(format!(
                "claim of {count} messages: 1 to {MAX_ITEMS} can be claimed at once"
            )));
        }
        let partition = self.partition();
        let (lease_ms, mut patience) = (limits::lease_ms(lease)?, Patience::new());
        let claim = loop {
            match partition.claim(count, lease_ms).await {
                Err(error) if patience.allows(&error, Repeat::Harmless) => patience.pause().await,
                result => break result.map_err(|error| patience.last(error))?,
            }
        };
        let now = Instant::now();
        let begun = |granted| {
            let delivery = Delivery::new(Arc::clone(partition), granted);
            delivery.begin(now);
            delivery
        };
        Ok(claim.granted.into_iter().map(begun).collect())
    }
}

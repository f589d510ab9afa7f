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
    /// lost, the library claims again, for up to 10 s. If the future is dropped, it may have claimed
    /// messages.
    ///
    /// # What must run
    /// Only workers take expired leases back. So a [`Worker`](crate::Worker), or `dueq work`, must
    /// attend the queue in some process, and it handles messages too. Then a message that the
    /// caller does not settle becomes available when its lease has expired, and one crash is
    /// counted. The same holds for messages of a lost reply or of a dropped future. If no worker
    /// attended the queue for 3 s, the next one waits 5 s before it takes leases back.
    ///
    /// While no worker attends the queue, the message stays leased: no claim returns it, and its
    /// delivery can still be extended and settled.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if `count` or `lease` is out of
    /// its range. Redis or the connection may fail as in any call: see
    /// [`Error::is_retryable`].
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

//! Claiming by hand.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::delivery::Delivery;
use crate::error::Error;
use crate::model::codec::Codec;
use crate::partition::Partition;
use crate::protocol::limits::{self, MAX_ITEMS};
use crate::protocol::results::claim::Claim;
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
    /// Of a queue of several partitions, one call asks one after the other until it has `count`
    /// messages. It waits for a server that is away only if no other has due messages.
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
    /// use dueq::Due;
    /// use std::time::Duration;
    ///
    /// let past = Due::at_ms(1_700_000_000_000);
    /// orders.push("rate it").id("order:42").due(past).await?;
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
        let lease_ms = limits::lease_ms(lease)?;
        let (mut partitions, mut deliveries) = (self.router.current(), Vec::new());
        // Of several partitions, each call begins with another one.
        let mut waiting: VecDeque<_> = partitions.list().iter().cloned().collect();
        waiting.rotate_left(self.router.next_claim() % partitions.list().len());
        let (mut asked, mut failed) = (Vec::new(), None);
        while deliveries.len() < count
            && let Some(partition) = waiting.pop_front()
        {
            let claimed = partition.claim(count - deliveries.len(), lease_ms).await;
            let claimed = claimed.map(|claim| deliver(&partition, claim));
            asked.push(partition.tag());
            let epoch = match claimed {
                Ok((granted, epoch)) => {
                    deliveries.extend(granted);
                    epoch
                }
                // Others may have due messages.
                Err(error) if deliveries.is_empty() => {
                    failed.get_or_insert((partition, error));
                    continue;
                }
                // The leases of what was claimed have begun.
                Err(_) => break,
            };
            if let Ok(newest) = self.router.confirm(&partitions, epoch).await
                && !Arc::ptr_eq(&newest, &partitions)
            {
                let others = newest.list().iter();
                waiting = others
                    .filter(|other| !asked.contains(&other.tag()))
                    .cloned()
                    .collect();
                partitions = newest;
            }
        }
        match failed.filter(|_| deliveries.is_empty()) {
            Some((partition, error)) => claim_again(&partition, error, count, lease_ms).await,
            None => Ok(deliveries),
        }
    }
}

/// Claims messages of a partition where a claim failed, patiently.
async fn claim_again(
    partition: &Arc<Partition>,
    failed: Error,
    count: usize,
    lease_ms: u64,
) -> Result<Vec<Delivery>, Error> {
    let (mut patience, mut last) = (Patience::new(), failed);
    while patience.allows(&last, Repeat::Harmless) {
        patience.pause().await;
        match partition.claim(count, lease_ms).await {
            Ok(claim) => return Ok(deliver(partition, claim).0),
            Err(error) => last = error,
        }
    }
    Err(patience.last(last))
}

/// The deliveries of a claim, and the epoch that the partition has.
fn deliver(partition: &Arc<Partition>, claim: Claim) -> (Vec<Delivery>, Option<u64>) {
    let now = Instant::now();
    let begun = |granted| {
        let delivery = Delivery::new(Arc::clone(partition), granted);
        delivery.begin(now);
        delivery
    };
    let deliveries = claim.granted.into_iter().map(begun).collect();
    (deliveries, claim.header.epoch)
}

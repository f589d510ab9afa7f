//! Claims by hand, without a worker.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::delivery::Delivery;
use crate::error::{Applied, Error};
use crate::model::codec::Codec;
use crate::model::lease_token::LeaseToken;
use crate::partition::Partition;
use crate::protocol::counts::{MAX_CLAIM, MAX_ITEMS};
use crate::protocol::limits;
use crate::protocol::partition_map::Tag;
use crate::protocol::results::claim::Claim;
use crate::queue::Queue;
use crate::router::Partitions;
use crate::server::patience::{Patience, Repeat};
use crate::server::rounds::at_once;
use crate::telemetry::metrics::Counter;

impl<C: Codec> Queue<C> {
    /// Claims up to `count` (1 to 1,000) due messages under a lease (1 ms to a day), without
    /// waiting; none if no message is due. If workers run, the call gets a fair share: the number
    /// of due messages divided by the number of live workers.
    ///
    /// A worker does the rest of the work for you; after this call the caller extends leases and
    /// settles deliveries. If the reply is lost, the library claims again, for up to 10 s. A
    /// dropped future may have claimed messages.
    ///
    /// If the queue has several partitions, the call asks one after the other until it has `count`
    /// messages. It waits for an unreachable server only if no other server has due messages. More
    /// than 256 messages of a partition take several calls.
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
        self.claim_by(None, count, lease).await
    }

    /// Claims with this token, or with a new token for each script call.
    pub(super) async fn claim_by(
        &self,
        token: Option<LeaseToken>,
        count: usize,
        lease: Duration,
    ) -> Result<Vec<Delivery>, Error> {
        if !(1..=MAX_ITEMS).contains(&count) {
            return Err(Error::invalid(format!(
                "claim of {count} messages: 1 to {MAX_ITEMS} can be claimed at once"
            )));
        }
        let lease_ms = limits::lease_ms(lease)?;
        let (mut partitions, mut deliveries) = (Box::pin(self.router.learned()).await, Vec::new());
        if let Some(token) = token {
            refuse_held(&partitions, &[], token).await?;
        }
        // Each claim begins with another partition. Claims with one token begin with the same
        // partition.
        let first = match token {
            Some(token) => usize::from(token.as_bytes()[0]),
            None => self.router.next_claim(),
        };
        // While the queue moves, consumers of the other store claim there.
        let mut waiting: VecDeque<_> = partitions.near_list().iter().cloned().collect();
        waiting.rotate_left(first % partitions.near_list().len());
        let (mut asked, mut failed) = (Vec::new(), None);
        while deliveries.len() < count
            && let Some(partition) = waiting.pop_front()
        {
            let wanted = (count - deliveries.len()).min(MAX_CLAIM);
            let claimed = partition.claim_with(or_new(token), wanted, lease_ms).await;
            let claimed = claimed.map(|claim| deliver(&partition, claim));
            asked.push(partition.tag());
            let epoch = match claimed {
                Ok((granted, epoch)) => {
                    if granted.len() == MAX_CLAIM && token.is_none() {
                        waiting.push_front(partition);
                    }
                    deliveries.extend(granted);
                    epoch
                }
                // The error is returned although this call may have been granted messages: `held`
                // returns those too.
                Err(error) if error.is_held() => return Err(error),
                // Other partitions may have due messages, so the loop continues.
                Err(error) if deliveries.is_empty() => {
                    failed.get_or_insert((partition, error));
                    continue;
                }
                // The claimed deliveries are returned without delay, because their leases have
                // begun.
                Err(_) => break,
            };
            if let Ok(newest) = self.router.confirm(&partitions, epoch).await
                && !Arc::ptr_eq(&newest, &partitions)
            {
                if let Some(token) = token {
                    refuse_held(&newest, &asked, token).await?;
                }
                let others = newest.near_list().iter();
                waiting = others
                    .filter(|other| !asked.contains(&other.tag()))
                    .cloned()
                    .collect();
                partitions = newest;
            }
        }
        match failed.filter(|_| deliveries.is_empty()) {
            Some((partition, error)) => {
                claim_again(&partition, error, token, count, lease_ms).await
            }
            None => {
                if let Some(token) = token {
                    refuse_other_grants(&partitions, &deliveries, token).await?;
                }
                Ok(deliveries)
            }
        }
    }
}

fn or_new(token: Option<LeaseToken>) -> LeaseToken {
    token.unwrap_or_else(LeaseToken::random)
}

/// Fails with the code `HELD` if one of several partitions has a lease with this token. The
/// partitions in `asked` have none. A queue of one partition is not asked, because its claim fails
/// with `HELD` itself.
pub(crate) async fn refuse_held(
    partitions: &Partitions,
    asked: &[Tag],
    token: LeaseToken,
) -> Result<(), Error> {
    for found in ask_for_lease(partitions, asked, token).await {
        if found.map_err(Error::of_read)? {
            return Err(held());
        }
    }
    Ok(())
}

/// Fails with the code `HELD` if a partition that granted none of these deliveries has a lease with
/// this token: `held` returns all of them. If a partition cannot be asked, the deliveries are
/// returned nevertheless.
pub(crate) async fn refuse_other_grants(
    partitions: &Partitions,
    deliveries: &[Delivery],
    token: LeaseToken,
) -> Result<(), Error> {
    if deliveries.is_empty() {
        return Ok(());
    }
    let tags = deliveries.iter().map(|delivery| delivery.handle().tag());
    let found = ask_for_lease(partitions, &tags.collect::<Vec<_>>(), token).await;
    match found.iter().any(|found| matches!(found, Ok(true))) {
        true => Err(held()),
        false => Ok(()),
    }
}

/// Asks the partitions of a queue with several, except those with these tags, whether they have a
/// lease with this token.
async fn ask_for_lease(
    partitions: &Partitions,
    but: &[Tag],
    token: LeaseToken,
) -> Vec<Result<bool, Error>> {
    let list = partitions.near_list();
    let others = list.iter().filter(|other| !but.contains(&other.tag()));
    let ask = |partition: &Arc<Partition>| {
        let partition = Arc::clone(partition);
        async move {
            let (claim, more) = partition.held(token).await?;
            Ok(more > 0 || !claim.granted.is_empty())
        }
    };
    at_once(others.filter(|_| list.len() > 1).map(ask)).await
}

fn held() -> Error {
    let message = "HELD: a lease has this token: an earlier claim has granted; read the grant with \
                   `held`, or claim with a new token";
    Error::invalid(message).with_code("HELD")
}

/// Claims messages of a partition where a claim failed, with repetitions. With a token it finds
/// what the lost reply granted.
async fn claim_again(
    partition: &Arc<Partition>,
    failed: Error,
    token: Option<LeaseToken>,
    count: usize,
    lease_ms: u64,
) -> Result<Vec<Delivery>, Error> {
    let (mut patience, mut last) = (Patience::new(), failed);
    let count = count.min(MAX_CLAIM);
    let mut unknown = false;
    while patience.allows(&last, Repeat::Harmless) {
        unknown |= last.was_applied() != Applied::No;
        patience.pause().await;
        match partition.claim_with(or_new(token), count, lease_ms).await {
            Ok(claim) => return Ok(deliver(partition, claim).0),
            Err(error) if error.is_held() && unknown => {
                let (claim, _) = partition.held(or_new(token)).await?;
                let granted = claim.granted.len() as u64;
                partition.meters().add_many(Counter::Claimed, granted);
                return Ok(deliver(partition, claim).0);
            }
            Err(error) => last = error,
        }
    }
    Err(patience.last(last))
}

/// Turns the reply to a claim into deliveries, and the epoch of the partition's map.
pub(super) fn deliver(partition: &Arc<Partition>, claim: Claim) -> (Vec<Delivery>, Option<u64>) {
    let now = Instant::now();
    let begun = |granted| {
        let delivery = Delivery::new(Arc::clone(partition), granted);
        delivery.begin(now);
        delivery
    };
    let deliveries = claim.granted.into_iter().map(begun).collect();
    (deliveries, claim.header.epoch)
}

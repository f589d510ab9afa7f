//! Claims whose token the caller chooses, and reads of what they granted.

use std::sync::Arc;
use std::time::Duration;

use crate::delivery::Delivery;
use crate::error::Error;
use crate::model::codec::Codec;
use crate::model::lease_token::LeaseToken;
use crate::protocol::results::claim::Claim;
use crate::protocol::verbs::Verb;
use crate::queue::Queue;
use crate::queue::claim::deliver;
use crate::server::patience::Repeat;

/// The deliveries that the lease of a claim still holds: see [`Queue::held`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HeldClaim {
    /// The deliveries, in the order of the grant. [`Delivery::deadline_ms`] is when the lease ends.
    pub deliveries: Vec<Delivery>,
    /// How many more deliveries the lease holds. A reply has at most 4 MiB of payloads of a
    /// partition, or one message. Further calls return the others once some of `deliveries` are
    /// settled.
    pub more: u64,
}

impl<C: Codec> Queue<C> {
    /// Claims as [`claim`](Queue::claim) does, with a token that the caller chooses. So the caller
    /// can repeat the claim after a crash, or when its own caller repeats a request: as long as the
    /// lease holds a message, the repetition grants nothing. It fails with the code `HELD`, and
    /// [`held`](Queue::held) returns the grant.
    ///
    /// A partition grants at most 256 messages, because it has only one lease with this token.
    ///
    /// Draw a new [`LeaseToken`] for each claim, and store it first. Once all messages of the lease
    /// are settled, extended or taken back, the token is free, and a claim with it grants others. So
    /// do not repeat a claim whose grant was read.
    ///
    /// If the reply is lost, the library asks again for up to 10 s and returns the grant. A dropped
    /// future may have claimed messages: `held` returns them.
    ///
    /// If the queue has several partitions, the call first asks all of them for the lease, and
    /// again after a grant: all must be reachable. Two calls with one token at the same time may
    /// both be granted messages, by two partitions. The later one fails with `HELD`, and `held`
    /// returns both grants. A grant whose reply was lost has the same effect.
    ///
    /// # Errors
    /// As [`claim`](Queue::claim). If a lease has the token,
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput), and [`Error::code`] is `HELD`.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::claims::LeaseToken;
    /// use std::time::Duration;
    ///
    /// orders.push("rate it").id("order:42").await?;
    /// let (token, lease) = (LeaseToken::random(), Duration::from_secs(30));
    /// let first = orders.claim_with_token(token, 10, lease).await?;
    /// # let first = if first.is_empty() { // less than 1 ms after the push
    /// #     tokio::time::sleep(Duration::from_millis(2)).await;
    /// #     orders.claim_with_token(token, 10, lease).await?
    /// # } else { first };
    /// drop(first); // the process ends, and another one knows the token
    ///
    /// let error = orders.claim_with_token(token, 10, lease).await.unwrap_err();
    /// assert_eq!(error.code(), Some("HELD"));
    /// for delivery in orders.held(&token).await?.deliveries {
    ///     delivery.ack().await?;
    /// }
    /// # assert!(orders.get("order:42").await?.is_none());
    /// # });
    /// ```
    pub async fn claim_with_token(
        &self,
        token: LeaseToken,
        count: usize,
        lease: Duration,
    ) -> Result<Vec<Delivery>, Error> {
        // Boxed: keeps the futures of callers shallow, as rustc limits their depth.
        Box::pin(self.claim_by(Some(token), count, lease)).await
    }

    /// Returns the deliveries that the lease with this token still holds; none if no lease has the
    /// token. They are the deliveries of the claim: settling one of both settles it. Changes
    /// nothing, so it can be repeated and dropped. The rights are those of a consumer.
    ///
    /// They do not include an extended delivery, which has a lease of its own. They include a
    /// delivery past its deadline until a worker reaps it: extend it before use.
    ///
    /// # Errors
    /// Redis or the connection may fail as in any call: see [`Error::is_retryable`]. If the queue
    /// has several partitions, all must be reachable.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// let held = orders.held(&delivery.lease_token()).await?;
    /// assert_eq!((held.deliveries.len(), held.more), (1, 0));
    /// delivery.ack().await?;
    /// assert!(orders.held(&delivery.lease_token()).await?.deliveries.is_empty());
    /// # });
    /// ```
    pub async fn held(&self, token: &LeaseToken) -> Result<HeldClaim, Error> {
        let bytes = *token.as_bytes();
        let args = |_| vec![bytes.to_vec()];
        let (partitions, replies) = self
            .call_each(Verb::Held, args, Repeat::Harmless)
            .await
            .map_err(Error::of_read)?;
        let mut held = HeldClaim {
            deliveries: Vec::new(),
            more: 0,
        };
        for (partition, reply) in partitions.list().iter().zip(replies) {
            let (claim, more): (Claim, u64) = Claim::decode_held(reply, bytes)?;
            held.deliveries
                .extend(deliver(&Arc::clone(partition), claim).0);
            held.more += more;
        }
        Ok(held)
    }
}

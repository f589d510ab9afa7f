//! The settlements and extensions of one granted message, for its delivery and for its handle in
//! another process. An ack may push follow-up messages.

use std::sync::Arc;
use std::time::Duration;

use super::Delivery;
use crate::batch::{BatchVerb, Batcher, Item, OfClaim};
use crate::error::Error;
use crate::model::due::{Due, MAX_DELAY_MS, ceil_ms};
use crate::model::message::Message;
use crate::model::outcomes::{
    AckPushOutcome, ExtendOutcome, RetryOutcome, SettleOutcome, SnoozeOutcome, ThrottleOutcome,
};
use crate::partition::Partition;
use crate::protocol::limits;
use crate::server::patience::Repeat;

/// Settles one message by its id and lease token, and extends its lease.
pub(crate) struct LeaseCalls<'a> {
    pub(crate) partition: &'a Partition,
    pub(crate) granted: Arc<dyn OfClaim>,
}

impl LeaseCalls<'_> {
    pub(crate) async fn ack(&self) -> Result<SettleOutcome, Error> {
        self.submit(&self.partition.settlers().ack, []).await
    }

    /// The ack of a worker: it waits up to 1 ms for other acks, to share a call with them.
    pub(crate) async fn ack_behind(&self) -> Result<SettleOutcome, Error> {
        self.submit(&self.partition.settlers().ack_lingering, [])
            .await
    }

    pub(crate) async fn again(&self, due: Due) -> Result<SettleOutcome, Error> {
        let due = due.encode()?.into_bytes();
        self.submit(&self.partition.settlers().again, [due]).await
    }

    pub(crate) async fn retry(&self, after: Duration, error: &str) -> Result<RetryOutcome, Error> {
        let after = Due::from(after)
            .encode()?
            .trim_start_matches('+')
            .as_bytes()
            .to_vec();
        let rest = [after, error.as_bytes().to_vec()];
        self.submit(&self.partition.settlers().retry, rest).await
    }

    pub(crate) async fn release(&self) -> Result<SettleOutcome, Error> {
        self.submit(&self.partition.settlers().release, []).await
    }

    pub(crate) async fn bury(&self, reason: &str) -> Result<SettleOutcome, Error> {
        let rest = [reason.as_bytes().to_vec()];
        self.submit(&self.partition.settlers().bury, rest).await
    }

    pub(crate) async fn snooze(&self, due: Due) -> Result<SnoozeOutcome, Error> {
        let due = due.encode()?.into_bytes();
        self.submit(&self.partition.settlers().snooze, [due]).await
    }

    /// Closes the partition of the message. Returns for how many ms the caller must close the other
    /// partitions.
    pub(crate) async fn throttle(
        &self,
        duration: Duration,
    ) -> Result<(ThrottleOutcome, u64), Error> {
        let wait_ms = ceil_ms(duration).clamp(1, MAX_DELAY_MS);
        let rest = [wait_ms.to_string().into_bytes()];
        let throttle = &self.partition.settlers().throttle;
        Ok((self.submit(throttle, rest).await?, wait_ms))
    }

    pub(crate) async fn extend(&self, lease: Duration) -> Result<ExtendOutcome, Error> {
        let lease_ms = limits::lease_ms(lease)?.to_string().into_bytes();
        self.submit(&self.partition.settlers().extend, [lease_ms])
            .await
    }

    async fn submit<V: BatchVerb, const N: usize>(
        &self,
        batcher: &Batcher<V>,
        rest: [Vec<u8>; N],
    ) -> Result<V::Output, Error> {
        batcher
            .submit(Item {
                granted: Some(Arc::clone(&self.granted)),
                args: rest.into(),
                // Harmless because of the fencing token: a settlement that acted does not act
                // again.
                repeat: Repeat::Harmless,
            })
            .await
    }
}

impl Delivery {
    /// Acks the message and stores its follow-up messages, all in one step.
    ///
    /// After `Done` the queue has the follow-ups. After any other outcome this call has pushed
    /// none. A consumer that has lost its lease pushes nothing: so each step of a chain happens
    /// once, also if an earlier execution of it still runs somewhere. A call takes up to 100
    /// follow-ups, with up to 16 MiB of payloads together. With none it is a plain
    /// [`ack`](Delivery::ack).
    ///
    /// A message without an id gets one from the delivery's id and its own number, such as
    /// `{order:42}/1` after `order:42`, and `{order:42}/1/1` after that. A repeated execution of the
    /// handler makes the same ids. The braces keep all of them in the partition of the first
    /// message; set ids yourself with the same part in braces. Ids have at most 200 bytes: in a chain
    /// without an end, set them.
    ///
    /// Each message is stored as by [`Queue::push_message`](crate::Queue::push_message) with
    /// [`OnConflict::Keep`](crate::OnConflict::Keep), in the queue of the delivery. If its id is in
    /// the queue or remembered already, this follow-up is not stored, its receipt says so, and the
    /// others are stored. A [`durability`](Message::durability) has no effect: as for an ack,
    /// nothing waits for replicas or disks.
    ///
    /// If the reply is lost, the library repeats the call for up to 10 s. If the first try had acted,
    /// the repetition returns `Gone`, or `Lost` if the id was pushed again meanwhile; the messages
    /// are stored once. A dropped future may or may not have acted. The call is not batched with
    /// those of other deliveries.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if a message is out of range,
    /// has another `on_conflict` or belongs to another partition;
    /// [`ErrorKind::Full`](crate::ErrorKind::Full) if the queue or the server's memory is full. The
    /// error names the message. Then nothing was changed, and the delivery is still leased: settle
    /// it in another way. A worker settles it with a retry.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// use dueq::Message;
    /// use dueq::outcomes::AckPushOutcome;
    /// use std::time::Duration;
    ///
    /// let ship = Message::new("ship");
    /// let review = Message::new("ask for a review").due(Duration::from_secs(7 * 86_400));
    /// match delivery.ack_push([ship, review]).await? {
    ///     AckPushOutcome::Done(receipts) => assert_eq!(receipts[0].id(), "{order:42}/1"),
    ///     other => println!("another consumer goes on: {other:?}"),
    /// }
    /// assert_eq!(orders.stats().await?.scheduled, 2);
    /// # });
    /// ```
    pub async fn ack_push(
        &self,
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<AckPushOutcome, Error> {
        let _settling = self.settling();
        let followed = self.calls().ack_push(messages).await?;
        self.close(followed == AckPushOutcome::Lost);
        Ok(followed)
    }
}

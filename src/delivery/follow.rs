//! Acking a delivery together with the messages that follow it.

use super::Delivery;
use crate::error::Error;
use crate::model::message::Message;
use crate::model::outcomes::Followed;

impl Delivery {
    /// Done: removes the message and stores the messages that follow it, all in one step.
    ///
    /// After `Done` the queue has them; after anything else none of them was pushed by this call. A
    /// consumer that has lost its lease pushes nothing: so each step of a chain happens once, also
    /// if an earlier execution of it still runs somewhere. Up to 100 messages follow, with up to
    /// 16 MiB of payloads together; none is a plain [`ack`](Delivery::ack).
    ///
    /// A message without an id gets one from the delivery's id and its own number, such as
    /// `{order:42}/1` after `order:42`, and `{order:42}/1/1` after that. A repeated execution of the
    /// handler makes the same ids. The braces keep all of them in the partition of the first
    /// message; set ids yourself with the same part in braces. Ids have at most 200 bytes: in a chain
    /// without an end, set them.
    ///
    /// Each message is stored as by [`Queue::push_message`](crate::Queue::push_message) with
    /// [`OnConflict::Keep`](crate::OnConflict::Keep), in the queue of the delivery. If its id is in
    /// the queue or remembered already, the push of that one stores nothing, its receipt says so, and
    /// the rest goes on. A [`durability`](Message::durability) has no effect: as for an ack, nothing
    /// waits for replicas or disks.
    ///
    /// If the reply is lost, the library repeats the call for up to 10 s. If the first try had acted,
    /// the repetition returns `Gone`, or `Lost` if the id was pushed again meanwhile; the messages
    /// are stored once. A dropped future may or may not have acted. The call is not batched with
    /// those of other deliveries.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if a message is out of range, has
    /// another `on_conflict` or belongs to another partition;
    /// [`ErrorKind::Full`](crate::ErrorKind::Full) if the queue or the server's memory is full. The
    /// error names the message. Then nothing was changed, and the delivery is still leased: settle it
    /// otherwise. A worker settles it with a retry.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// use dueq::{Followed, Message};
    /// use std::time::Duration;
    ///
    /// let ship = Message::new("ship");
    /// let review = Message::new("ask for a review").due(Duration::from_secs(7 * 86_400));
    /// match delivery.ack_push([ship, review]).await? {
    ///     Followed::Done(receipts) => assert_eq!(receipts[0].id(), "{order:42}/1"),
    ///     other => println!("another consumer goes on: {other:?}"),
    /// }
    /// assert_eq!(orders.stats().await?.scheduled, 2);
    /// # });
    /// ```
    pub async fn ack_push(
        &self,
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<Followed, Error> {
        let _settling = self.settling();
        let followed = self.calls().ack_push(messages).await?;
        self.close(followed == Followed::Lost);
        Ok(followed)
    }
}

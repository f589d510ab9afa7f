//! Calls that push messages.

use crate::batch::{Item, allows_new_try};
use crate::error::Error;
use crate::model::codec::{self, Codec};
use crate::model::message::Message;
use crate::model::push_rules::OnConflict;
use crate::model::receipt::Receipt;
use crate::partition::producers::{due_of, named, push_item, receipt};
use crate::partition::{Partition, Producers};
use crate::queue::bulk::{Bulk, Left, Slot, new_id_in};
use crate::queue::submit;
use crate::queue::{Push, Queue};
use crate::router::{Routing, Step};
use crate::telemetry::metrics::Counter;

impl<C: Codec> Queue<C> {
    /// Makes a push of this value, which the queue's codec encodes. It is sent when it is awaited.
    /// The [builder](Push) sets id, due time and options.
    ///
    /// Awaiting the push returns an error or panic of the codec as
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput); then nothing is sent. For the
    /// outcomes and other errors see [`push_message`](Queue::push_message).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use std::time::Duration;
    ///
    /// let receipt = orders.push("rate it").id("order:42").delay(Duration::from_secs(60)).await?;
    /// assert!(receipt.is_created());
    /// # });
    /// ```
    pub fn push(&self, value: impl Into<C::Value>) -> Push<'_, C> {
        Push::new(self, self.message(value))
    }

    /// Makes a message of this value, which the queue's codec encodes: for
    /// [`push_message`](Queue::push_message) and [`push_many`](Queue::push_many).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the codec fails or panics.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// let message = orders.message("rate it")?.id("order:42");
    /// orders.push_message(message).await?;
    /// # });
    /// ```
    pub fn message(&self, value: impl Into<C::Value>) -> Result<Message, Error> {
        codec::encode(self.codec(), value.into()).map(Message::new)
    }

    /// Stores a message, to be delivered when it is due. The payload is stored as it is, without
    /// the codec.
    ///
    /// When this returns `Created`, Redis has the message: it will be delivered, cancelled, buried,
    /// or trimmed by a limit that an operator set. While a message with this id is in the queue, a
    /// push changes nothing and returns `Exists`. Once that message is delivered or cancelled, a
    /// push of its id stores a new message.
    ///
    /// If the reply is lost, the library repeats the push for up to 10 s. The repetition never
    /// stores a second message: it returns `Exists`, or `Finished` if the message has been
    /// delivered or cancelled meanwhile. A caller who repeats a push with a
    /// [`window`](Message::window) gets `Exists` or `Remembered`, also after an error that left open
    /// whether the first push took effect: so with a window the message is stored once.
    ///
    /// Pushes with [`OnConflict::Keep`] and pushes with another [`OnConflict`] travel in separate
    /// calls, and neither waits for the other. Order between the two holds only for a caller that
    /// awaits the first.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if id, payload, due time or
    /// options are out of range; [`ErrorKind::Full`](crate::ErrorKind::Full) if the queue or the
    /// server's memory is full. In both cases nothing is stored.
    /// [`Applied::Unknown`](crate::Applied::Unknown) if Redis was away for 10 s: then
    /// [`Error::message_id`] returns the id.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::{Message, MessageState};
    /// use dueq::outcomes::PushOutcome;
    /// use std::time::Duration;
    ///
    /// let message = Message::new("rate it").id("order:42").due(Duration::from_secs(60));
    /// assert_eq!(orders.push_message(message.clone()).await?.outcome(), PushOutcome::Created);
    /// let repeated = orders.push_message(message).await?;
    /// assert_eq!(repeated.outcome(), PushOutcome::Exists(MessageState::Scheduled));
    /// # });
    /// ```
    pub async fn push_message(&self, mut message: Message) -> Result<Receipt, Error> {
        let mut routing = Routing::new(&self.router);
        let id = self.named(&mut message, &mut routing).await?;
        let due = due_of(&message, &id);
        let durability = message.durability.unwrap_or(self.durability);
        let on_conflict = message.on_conflict;
        let item = self.push_item(message)?;
        // Upserts have batches of their own, so that they do not delay new messages.
        let result = match on_conflict {
            OnConflict::Keep => {
                submit(&mut routing, durability, &|to: &Producers| &to.push, item).await
            }
            _ => submit(&mut routing, durability, &|to: &Producers| &to.upsert, item).await,
        };
        receipt(result, id, due)
    }

    /// Pushes many messages, in script calls of up to 256 messages or 1 MiB. If the messages may
    /// replace others, a call has up to 64. The results are in the order of the messages, and each
    /// message succeeds or fails on its own. Payloads are stored as they are: in a typed queue make
    /// the messages by [`Queue::message`].
    ///
    /// If the future is dropped, some messages may be stored and others not.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::Message;
    ///
    /// let messages = (0..1_000).map(|n| Message::new("rate it").id(format!("order:{n}")));
    /// for receipt in orders.push_many(messages).await {
    ///     assert!(receipt?.is_created());
    /// }
    /// # });
    /// ```
    pub async fn push_many(
        &self,
        messages: impl IntoIterator<Item = Message>,
    ) -> Vec<Result<Receipt, Error>> {
        let mut routing = Routing::new(&self.router);
        let mut bulk = match self.bulk(&mut routing).await {
            Ok(bulk) => bulk,
            Err(error) => return messages.into_iter().map(|_| Err(error.clone())).collect(),
        };
        let mut results = Vec::new();
        for mut message in messages {
            let id = message.id.get_or_insert_with(|| bulk.new_id()).clone();
            let slot = Slot {
                index: results.len(),
                due: due_of(&message, &id),
                durability: message.durability.unwrap_or(self.durability),
                on_conflict: message.on_conflict,
                step: Step::Old,
            };
            results.push(None);
            match self.push_item(message) {
                Ok(item) => bulk.add(item, slot).await,
                Err(error) => results[slot.index] = Some(Err(error)),
            }
        }
        let mut left = bulk.send(&mut results).await;
        while !left.is_empty() {
            let mut bulk = match self.bulk_again(&mut routing, &left).await {
                Ok(bulk) => bulk,
                Err(error) => {
                    for Left { slot, refusal, .. } in left {
                        let error = match refusal {
                            Some((_, refusal)) => error.clone().like(&refusal),
                            None => error.clone(),
                        };
                        results[slot.index] = Some(Err(error));
                    }
                    break;
                }
            };
            let is_remapped = left.iter().any(|left| left.refusal.is_some());
            for left in left {
                let Left {
                    item,
                    mut slot,
                    refusal,
                } = left;
                if is_remapped {
                    slot.step = Step::Old;
                }
                match refusal {
                    Some((_, refusal)) if !allows_new_try(&refusal) => {
                        results[slot.index] = Some(Err(refusal));
                    }
                    _ => bulk.add(item, slot).await,
                }
            }
            left = bulk.send(&mut results).await;
        }
        // By now every message has a result.
        results.into_iter().flatten().collect()
    }

    async fn bulk(&self, routing: &mut Routing<'_>) -> Result<Bulk, Error> {
        let partitions = routing.partitions().await?;
        let open = self.router.open_index(partitions.takers());
        Ok(Bulk::new(partitions, open))
    }

    /// The next round of a bulk push, for messages that have no result after a round.
    async fn bulk_again(&self, routing: &mut Routing<'_>, left: &[Left]) -> Result<Bulk, Error> {
        let refusals = by_partition(left);
        if !refusals.is_empty() {
            routing.refused(&refusals).await?;
        }
        if left.iter().any(Left::is_moving) {
            routing.moving().await?;
        }
        self.bulk(routing).await
    }

    /// The id of the message. For a message without an id, the library makes one before the first
    /// try, such that the message belongs to the open partition.
    async fn named(
        &self,
        message: &mut Message,
        routing: &mut Routing<'_>,
    ) -> Result<Vec<u8>, Error> {
        if message.id.is_none() {
            let partitions = routing.partitions().await?.takers();
            message.id = Some(new_id_in(self.router.open_index(partitions), partitions));
        }
        Ok(named(message))
    }

    /// Makes the item of a push. A message out of range counts as refused in the metrics, although
    /// it is not sent.
    fn push_item(&self, message: Message) -> Result<Item, Error> {
        push_item(message).inspect_err(|_| self.router.meters().add(Counter::PushRefused))
    }
}

/// One refused message for each partition, with its error.
fn by_partition(left: &[Left]) -> Vec<(&Partition, &Error)> {
    let mut refusals: Vec<(&Partition, &Error)> = Vec::new();
    for (by, refusal) in left.iter().filter_map(|left| left.refusal.as_ref()) {
        let is_known = refusals.iter().any(|(known, _)| known.tag() == by.tag());
        if !is_known {
            refusals.push((by, refusal));
        }
    }
    refusals
}

//! Pushing messages.

use std::sync::Arc;

use crate::batch::{Group, Item};
use crate::error::Error;
use crate::model::durability::Durability;
use crate::model::message::{Message, OnConflict};
use crate::model::outcomes::Pushed;
use crate::partition::Producers;
use crate::protocol::limits;
use crate::protocol::results::produce::PushResult;
use crate::queue::Queue;
use crate::server::patience::Repeat;
use crate::telemetry::metrics::Count;

impl Queue {
    /// Stores a message, to be delivered when it is due.
    ///
    /// When this returns `Created`, Redis has the message: it will be delivered, cancelled, buried,
    /// or trimmed by a limit that an operator set. While a message with this id is in the queue, a
    /// push changes nothing and returns `Exists`. Once that message is delivered or cancelled, a
    /// push of its id stores a new message.
    ///
    /// If the reply is lost, the library repeats the push for up to 10 s. The repetition never
    /// stores a second message: it returns `Exists`, or `Finished` if the message has been
    /// delivered or cancelled meanwhile.
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
    pub async fn push(&self, message: Message) -> Result<Pushed, Error> {
        let id = message.id.clone();
        let durability = message.durability.unwrap_or(self.durability);
        let on_conflict = message.on_conflict;
        let item = self.push_item(message)?;
        let producers = self.producers(durability).await?;
        // Batches of their own: an upsert must not hold up new messages.
        let result = match on_conflict {
            OnConflict::Keep => producers.push.submit(item).await,
            _ => producers.upsert.submit(item).await,
        };
        pushed(result, &id)
    }

    /// Pushes many messages, in calls of up to 256 messages or 1 MiB. The results are in the order
    /// of the messages, and each message succeeds or fails on its own.
    ///
    /// If the future is dropped, some messages may be stored and others not.
    pub async fn push_many(
        &self,
        messages: impl IntoIterator<Item = Message>,
    ) -> Vec<Result<Pushed, Error>> {
        let mut answers = Vec::new();
        let mut group = Group::default();
        let mut kind = (self.durability, OnConflict::Keep);
        for message in messages {
            let id = message.id.clone();
            let durability = message.durability.unwrap_or(self.durability);
            let wanted = (durability, message.on_conflict);
            let answer = match self.push_item(message) {
                Ok(item) => {
                    if wanted != kind || !group.has_room_for(&item) {
                        self.enqueue(std::mem::take(&mut group), kind).await;
                    }
                    kind = wanted;
                    Ok(group.add(item))
                }
                Err(error) => Err(error),
            };
            answers.push((id, answer));
        }
        self.enqueue(group, kind).await;
        let mut results = Vec::with_capacity(answers.len());
        for (id, answer) in answers {
            results.push(match answer {
                Ok(answer) => pushed(answer.get().await, &id),
                Err(error) => Err(error),
            });
        }
        results
    }

    async fn enqueue(
        &self,
        group: Group<PushResult>,
        (durability, on_conflict): (Durability, OnConflict),
    ) {
        if group.is_empty() {
            return;
        }
        // The producers are not kept beyond this call, so that unused ones make room for others.
        match self.producers(durability).await {
            Ok(producers) => match on_conflict {
                OnConflict::Keep => producers.push.enqueue(group).await,
                _ => producers.upsert.enqueue(group).await,
            },
            Err(error) => group.fail(&error),
        }
    }

    pub(super) fn producers(
        &self,
        durability: Durability,
    ) -> impl Future<Output = Result<Arc<Producers>, Error>> {
        self.partition().producers(durability)
    }

    /// The item of a push. A message out of range counts as refused although it is not sent.
    fn push_item(&self, message: Message) -> Result<Item, Error> {
        push_item(message).inspect_err(|_| self.partition().meters().add(Count::PushRefused))
    }
}

fn pushed(result: Result<PushResult, Error>, id: &[u8]) -> Result<Pushed, Error> {
    result
        .map_err(|error| error.of_message(id))
        .and_then(PushResult::outcome)
}

fn push_item(message: Message) -> Result<Item, Error> {
    limits::check_id(&message.id)?;
    limits::check_payload(&message.payload)?;
    message
        .max_attempts
        .map_or(Ok(()), limits::check_max_attempts)?;
    message
        .trace_parent
        .as_deref()
        .map_or(Ok(()), limits::check_trace_parent)?;
    let due = message.due.encode()?.into_bytes();
    let options = message.options().into_bytes();
    let repeat = if message.is_repeatable() {
        Repeat::Harmless
    } else {
        Repeat::Unsafe
    };
    Ok(Item {
        granted: None,
        args: vec![message.id, due, message.payload, options],
        repeat,
    })
}

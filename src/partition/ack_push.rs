//! The ack of a delivery together with its follow-ups.

use crate::batch::{BatchVerb, Item};
use crate::error::{Applied, Error, ErrorKind};
use crate::model::due::Due;
use crate::model::message::Message;
use crate::model::outcomes::AckPushOutcome;
use crate::model::push_rules::OnConflict;
use crate::partition::Partition;
use crate::partition::producers::{due_of, push_item, receipt};
use crate::partition::verbs::{failed_settlement, push_count};
use crate::protocol::counts::MAX_FOLLOW_UPS;
use crate::protocol::limits::MAX_PAYLOAD_BYTES;
use crate::protocol::partition_map::{id_of_follow_up, index_of};
use crate::protocol::replies::{Body, unexpected};
use crate::protocol::results::settle::{self, AckPushed};
use crate::protocol::verbs::Verb;
use crate::server::patience::Repeat;
use crate::telemetry::metrics::Counter;

/// The verb that acks a delivery and stores its follow-ups.
pub(crate) struct AckPush;

impl BatchVerb for AckPush {
    const VERB: Verb = Verb::AckPush;
    const ALONE: bool = true;
    type Output = AckPushed;

    /// Never called: the reply of this verb is not a list of results.
    fn decode(text: &str, _: i64) -> Result<AckPushed, Error> {
        Err(unexpected(Self::VERB, text))
    }

    fn decode_only(body: &mut Body, now_us: i64) -> Result<AckPushed, Error> {
        settle::ack_pushed(body, now_us)
    }

    fn count(result: &Result<AckPushed, Error>) -> Option<Counter> {
        match result {
            Ok(AckPushed::Done(_)) => Some(Counter::Acked),
            Ok(AckPushed::Gone | AckPushed::Lost) => Some(Counter::SettledLate),
            Ok(AckPushed::Refused(..)) => None,
            Err(error) => failed_settlement(error),
        }
    }
}

/// The follow-ups of a delivery, after their checks.
pub(crate) struct FollowUps {
    /// The arguments of the call: id, due time, payload and options of each follow-up.
    args: Vec<Vec<u8>>,
    named: Vec<(Vec<u8>, Due)>,
}

impl FollowUps {
    pub(crate) fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// Makes the item of the call, for the delivery with this token and id.
    pub(crate) fn take_item(&mut self, token: &[u8], id: &[u8]) -> Item {
        let mut args = vec![[token, id].concat()];
        args.append(&mut self.args);
        Item {
            granted: None,
            args,
            // Harmless because of the fencing token: if the call has acted, a repetition replies
            // GONE or LOST.
            repeat: Repeat::Harmless,
        }
    }

    /// The outcome for the caller, with a receipt for each follow-up.
    pub(crate) fn followed(
        self,
        result: AckPushed,
        partition: &Partition,
    ) -> Result<AckPushOutcome, Error> {
        match result {
            AckPushed::Done(results) => {
                let results = results.into_iter().map(Ok).inspect(|result| {
                    if let Some(count) = push_count(result) {
                        partition.meters().add(count);
                    }
                });
                let receipts = results
                    .zip(self.named)
                    .map(|(result, (id, due))| receipt(result, id, due));
                Ok(AckPushOutcome::Done(receipts.collect::<Result<_, _>>()?))
            }
            AckPushed::Gone => Ok(AckPushOutcome::Gone),
            AckPushed::Lost => Ok(AckPushOutcome::Lost),
            AckPushed::Refused(index, error) => {
                partition.meters().add(Counter::PushRefused);
                let count = self.named.len();
                let id = self.named.get(index).map(|(id, _)| id.as_slice());
                Err(refused(index, count, id.unwrap_or_default(), &error))
            }
        }
    }
}

impl Partition {
    /// Gives ids to the follow-ups of the delivery with this id, and checks them.
    ///
    /// # Errors
    /// `InvalidInput` if a message cannot be a follow-up of it; the error names the message.
    pub(crate) fn follow_ups(
        &self,
        parent: &[u8],
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<FollowUps, Error> {
        let messages: Vec<_> = messages.into_iter().collect();
        let count = messages.len();
        if count > MAX_FOLLOW_UPS {
            return Err(Error::invalid(format!(
                "{count} messages follow one delivery: at most {MAX_FOLLOW_UPS} may"
            )));
        }
        let mut follow_ups = FollowUps {
            args: Vec::with_capacity(4 * count),
            named: Vec::with_capacity(count),
        };
        let mut bytes = 0;
        for (index, mut message) in messages.into_iter().enumerate() {
            let id = message
                .id
                .get_or_insert_with(|| id_of_follow_up(parent, index + 1))
                .clone();
            bytes += message.payload.len();
            let due = due_of(&message, &id);
            let item = self
                .check_route(parent, &id, &message)
                .and_then(|()| push_item(message))
                .map_err(|error| refused(index, count, &id, &error))?;
            follow_ups.args.extend(item.args);
            follow_ups.named.push((id, due));
        }
        if bytes > MAX_PAYLOAD_BYTES {
            return Err(Error::invalid(format!(
                "the payloads of {count} messages that follow one delivery have {bytes} bytes together: at most \
                 {MAX_PAYLOAD_BYTES} may"
            )));
        }
        Ok(follow_ups)
    }

    /// Refuses a message that this partition cannot store with the ack of `parent`.
    fn check_route(&self, parent: &[u8], id: &[u8], message: &Message) -> Result<(), Error> {
        if message.on_conflict != OnConflict::Keep {
            return Err(Error::invalid(
                "on_conflict is set: a message that follows a delivery is stored only if its id is not in the queue",
            ));
        }
        if id == parent {
            return Err(Error::invalid(
                "it has the id of the delivery: give it another id",
            ));
        }
        let (place, partitions) = (&self.place, self.place.partitions);
        let index = index_of(id, partitions);
        if index == place.index {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "its id belongs to partition {index} of {partitions}, and the delivery is of partition {}: give it an id with \
             the same part in braces, such as {{order:42}}/1 after order:42",
            place.index
        )))
    }
}

fn refused(index: usize, count: usize, id: &[u8], error: &Error) -> Error {
    let kind = match error.kind() {
        ErrorKind::Full => ErrorKind::Full,
        _ => ErrorKind::InvalidInput,
    };
    let message = format!(
        "message {} of {count} that follow the delivery, id {:?}, is refused, so nothing is pushed and the delivery \
         stays leased: {error}",
        index + 1,
        String::from_utf8_lossy(id)
    );
    Error::new(kind, Applied::No, message)
}

//! The ack of a delivery together with its follow-ups.

use crate::batch::{BatchVerb, Item};
use crate::error::{Applied, Error, ErrorKind};
use crate::model::due::Due;
use crate::model::message::Message;
use crate::model::outcomes::AckPushOutcome;
use crate::model::push_rules::OnConflict;
use crate::model::receipt::Receipt;
use crate::partition::Partition;
use crate::partition::producers::{due_of, push_item, receipt};
use crate::partition::verbs::{failed_settlement, push_count};
use crate::protocol::counts::MAX_FOLLOW_UPS;
use crate::protocol::limits::MAX_PAYLOAD_BYTES;
use crate::protocol::partition_map::{id_of_follow_up, index_of};
use crate::protocol::replies::{Body, unexpected};
use crate::protocol::results::produce::PushResult;
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
pub(crate) struct FollowUps(Vec<FollowUp>);

struct FollowUp {
    id: Vec<u8>,
    due: Due,
    /// The arguments of its push: id, due time, payload and options. Empty while a call has them.
    args: Vec<Vec<u8>>,
    /// If it was pushed before the ack.
    receipt: Option<Receipt>,
}

impl FollowUps {
    /// Gives ids to the follow-ups of the delivery with this id, and checks them.
    ///
    /// # Errors
    /// `InvalidInput` if a message cannot be a follow-up of it; the error names the message.
    pub(crate) fn of(
        parent: &[u8],
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<Self, Error> {
        let messages: Vec<_> = messages.into_iter().collect();
        let count = messages.len();
        if count > MAX_FOLLOW_UPS {
            return Err(Error::invalid(format!(
                "{count} messages follow one delivery: at most {MAX_FOLLOW_UPS} may"
            )));
        }
        let mut follow_ups = Vec::with_capacity(count);
        let mut bytes = 0;
        for (index, mut message) in messages.into_iter().enumerate() {
            let id = message
                .id
                .get_or_insert_with(|| id_of_follow_up(parent, index + 1))
                .clone();
            bytes += message.payload.len();
            let due = due_of(&message, &id);
            let item = check(parent, &id, &message)
                .and_then(|()| push_item(message))
                .map_err(|error| refused(index, count, &id, &error))?;
            follow_ups.push(FollowUp {
                id,
                due,
                args: item.args,
                receipt: None,
            });
        }
        if bytes > MAX_PAYLOAD_BYTES {
            return Err(Error::invalid(format!(
                "the payloads of {count} messages that follow one delivery have {bytes} bytes together: at most \
                 {MAX_PAYLOAD_BYTES} may"
            )));
        }
        Ok(Self(follow_ups))
    }

    /// Whether no follow-up is left to be stored with the ack.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|one| one.receipt.is_some())
    }

    /// The next follow-up that `partition` cannot store, because the partitions change and its
    /// message may be elsewhere: its index, and the item of its push. If the ack is not
    /// applied, the next execution of the handler pushes it again.
    ///
    /// # Errors
    /// `InvalidInput` if the follow-up belongs to another partition.
    pub(crate) fn next_elsewhere(
        &self,
        partition: &Partition,
    ) -> Result<Option<(usize, Item)>, Error> {
        let place = &partition.place;
        let mut list = self.0.iter().enumerate();
        let elsewhere = list.find(|(_, one)| one.receipt.is_none() && !place.holds(&one.id));
        let Some((number, follow_up)) = elsewhere else {
            return Ok(None);
        };
        if let [(own, partitions)] = place.lists[..] {
            let error = Error::invalid(format!(
                "its id belongs to partition {} of {partitions}, and the delivery is of partition {}: give it an id \
                 with the same part in braces, such as {{order:42}}/1 after order:42",
                index_of(&follow_up.id, partitions),
                own.unwrap_or_default()
            ));
            return Err(refused(number, self.0.len(), &follow_up.id, &error));
        }
        // No window is added: one that outlives the change would keep later follow-ups of the id out.
        let args = follow_up.args.clone();
        let repeat = Repeat::Harmless;
        let granted = None;
        let item = Item {
            granted,
            args,
            repeat,
        };
        Ok(Some((number, item)))
    }

    /// Records that the follow-up with this index was pushed before the ack.
    pub(crate) fn pushed(
        &mut self,
        index: usize,
        result: Result<PushResult, Error>,
    ) -> Result<(), Error> {
        let FollowUp { id, due, .. } = &self.0[index];
        let receipt = receipt(result, id.clone(), *due)?;
        self.0[index].receipt = Some(receipt);
        Ok(())
    }

    /// Makes the item of the call, for the delivery with this token and id.
    pub(crate) fn take_item(&mut self, token: &[u8], id: &[u8]) -> Item {
        let mut args = vec![[token, id].concat()];
        for follow_up in self.here() {
            args.append(&mut follow_up.args);
        }
        Item {
            granted: None,
            args,
            // Harmless because of the fencing token: if the call has acted, a repetition replies
            // GONE or LOST.
            repeat: Repeat::Harmless,
        }
    }

    /// Takes back the arguments of a call that was not applied.
    pub(crate) fn put_back(&mut self, item: Item) {
        let mut args = item.args.into_iter().skip(1);
        for follow_up in self.here() {
            follow_up.args = args.by_ref().take(4).collect();
        }
    }

    /// The follow-ups that are stored with the ack.
    fn here(&mut self) -> impl Iterator<Item = &mut FollowUp> {
        self.0.iter_mut().filter(|one| one.receipt.is_none())
    }

    /// The outcome after a plain ack, because no follow-up was left.
    pub(crate) fn followed_none(self) -> AckPushOutcome {
        let receipts = self.0.into_iter().filter_map(|one| one.receipt);
        AckPushOutcome::Done(receipts.collect())
    }

    /// The outcome for the caller, with a receipt for each follow-up.
    pub(crate) fn followed(
        mut self,
        result: AckPushed,
        partition: &Partition,
    ) -> Result<AckPushOutcome, Error> {
        match result {
            AckPushed::Done(results) => {
                for (follow_up, result) in self.here().zip(results) {
                    let result = Ok(result);
                    if let Some(count) = push_count(&result) {
                        partition.meters().add(count);
                    }
                    let id = follow_up.id.clone();
                    follow_up.receipt = Some(receipt(result, id, follow_up.due)?);
                }
                Ok(self.followed_none())
            }
            AckPushed::Gone => Ok(AckPushOutcome::Gone),
            AckPushed::Lost => Ok(AckPushOutcome::Lost),
            AckPushed::Refused(index, error) => {
                partition.meters().add(Counter::PushRefused);
                let count = self.0.len();
                let sent = self.0.iter().enumerate();
                let mut sent = sent.filter(|(_, one)| one.receipt.is_none());
                let found = sent.nth(index);
                let (index, id) = found.map_or((index, &[][..]), |(index, one)| (index, &one.id));
                Err(refused(index, count, id, &error))
            }
        }
    }
}

/// Refuses a message that cannot follow `parent`.
fn check(parent: &[u8], id: &[u8], message: &Message) -> Result<(), Error> {
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
    Ok(())
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

//! One message as the item of a push, and its receipt.

use crate::batch::Item;
use crate::error::Error;
use crate::model::due::Due;
use crate::model::id::new_id;
use crate::model::message::Message;
use crate::model::receipt::Receipt;
use crate::protocol::limits;
use crate::protocol::results::produce::PushResult;
use crate::protocol::spread::{self, spread};
use crate::server::patience::Repeat;

/// The id of the message; one that has none gets a new one.
pub(crate) fn named(message: &mut Message) -> Vec<u8> {
    message.id.get_or_insert_with(new_id).clone()
}

/// When the message with this id is due: later than asked if its due time is spread.
pub(crate) fn due_of(message: &Message, id: &[u8]) -> Due {
    spread(message.due, message.spread_ms, id)
}

/// The receipt of a push of the message with this id and due time.
pub(crate) fn receipt(
    result: Result<PushResult, Error>,
    id: Vec<u8>,
    due: Due,
) -> Result<Receipt, Error> {
    let result = result.map_err(|error| error.of_message(&id))?;
    Ok(Receipt {
        outcome: result.outcome()?,
        due_ms: result.now_up_ms().map(|now_ms| due.unix_ms(now_ms)),
        id,
    })
}

/// The item of a push: id, due time, payload and options.
///
/// # Errors
/// `InvalidInput` if one of them is out of its range.
pub(crate) fn push_item(mut message: Message) -> Result<Item, Error> {
    let id = named(&mut message);
    limits::check_id(&id)?;
    limits::check_payload(&message.payload)?;
    message
        .max_attempts
        .map_or(Ok(()), limits::check_max_attempts)?;
    message
        .trace_parent
        .as_deref()
        .map_or(Ok(()), limits::check_trace_parent)?;
    limits::check_expiry(message.expires, message.on_expire)?;
    message.cost.map_or(Ok(()), limits::check_cost)?;
    spread::check(message.due, message.spread_ms)?;
    let due = due_of(&message, &id);
    limits::check_uniqueness(message.unique, message.on_conflict, due)?;
    let due = due.encode()?.into_bytes();
    let options = message.options().into_bytes();
    let repeat = if message.is_repeatable() {
        Repeat::Harmless
    } else {
        Repeat::Unsafe
    };
    Ok(Item {
        granted: None,
        args: vec![id, due, message.payload, options],
        repeat,
    })
}

//! How a handler's result settles its delivery.

use std::fmt;
use std::time::Duration;

use crate::model::due::Due;
use crate::model::message::Message;

/// How a worker settles a delivery. A handler returns it, directly or through [`IntoSettlement`].
///
/// ```
/// use dueq::{Delivery, Settlement};
///
/// async fn charge(delivery: Delivery) -> anyhow::Result<Settlement> {
///     let Ok(order) = delivery.json::<u64>() else {
///         return Ok(Settlement::bury("not an order number"));
///     };
///     // An error of this call becomes a retry, with the worker's delay.
///     bank(order).await?;
///     Ok(Settlement::Ack)
/// }
/// # async fn bank(_: u64) -> anyhow::Result<()> { Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settlement {
    /// Done: the message is removed.
    Ack,
    /// Done, with follow-ups: the message is removed and these messages are pushed in one step, as
    /// [`Delivery::ack_push`](crate::Delivery::ack_push) does. If a follow-up is refused, the
    /// delivery is settled with a retry and that error.
    AckAnd(Vec<Message>),
    /// Done for this time: the message is due again at this time, with its attempts reset.
    Again(Due),
    /// Failed: the message is due again after a delay, or dead at the limit of attempts.
    Retry {
        /// The delay; `None` for the worker's [`Retry`](crate::Retry).
        after: Option<Duration>,
        /// The error, of which the queue keeps the first 1,024 bytes with the message.
        error: String,
    },
    /// Given back: the message is due at once, and no attempt counts.
    Release,
    /// Failed for good: the message is dead at once, for this reason.
    Bury(String),
    /// Postponed: the message is due again at this time, and no attempt counts, as with
    /// [`Delivery::snooze`](crate::Delivery::snooze).
    Snooze(Due),
    /// Given back with a break: no message of the queue starts for this long, and no attempt
    /// counts, as with [`Delivery::throttle`](crate::Delivery::throttle).
    Throttle(Duration),
}

impl Settlement {
    /// Removes the message and pushes these follow-ups, 100 at most: for a process whose steps push
    /// the next one.
    ///
    /// ```
    /// use dueq::{Delivery, Message, Settlement};
    ///
    /// async fn charge(_order: Delivery) -> Settlement {
    ///     // Charge the card, and then:
    ///     Settlement::ack_and(vec![Message::new("ship")])
    /// }
    /// ```
    pub fn ack_and(messages: Vec<Message>) -> Self {
        Self::AckAnd(messages)
    }

    /// Makes the message due again at this time or after this delay, with its attempts reset.
    pub fn again(due: impl Into<Due>) -> Self {
        Self::Again(due.into())
    }

    /// Reports a failure: the message is retried after the worker's delay.
    pub fn retry(error: impl fmt::Display) -> Self {
        Self::Retry {
            after: None,
            error: error.to_string(),
        }
    }

    /// Reports a failure: the message is retried after this delay.
    pub fn retry_after(after: Duration, error: impl fmt::Display) -> Self {
        Self::Retry {
            after: Some(after),
            error: error.to_string(),
        }
    }

    /// Postpones the message to this time or by this delay. Its attempts stay as they are.
    pub fn snooze(due: impl Into<Due>) -> Self {
        Self::Snooze(due.into())
    }

    /// Closes the queue for this long, and gives the message back: for a receiver that asks for a
    /// break, such as by `429 Too Many Requests` with `Retry-After`.
    pub fn throttle(duration: Duration) -> Self {
        Self::Throttle(duration)
    }

    /// Makes the message dead at once, for this reason.
    pub fn bury(reason: impl Into<String>) -> Self {
        Self::Bury(reason.into())
    }
}

/// What a handler may return: nothing, a [`Settlement`], or a `Result` of either, whose error
/// becomes a retry.
///
/// The text of the error is stored beside the message, its first 1,024 bytes:
/// [`StoredMessage::error`](crate::StoredMessage::error). It is formatted with `{:#}`, so the text
/// of an `anyhow::Error` contains all its causes. Most other errors print only themselves.
pub trait IntoSettlement {
    /// The settlement that this result asks for.
    fn into_settlement(self) -> Settlement;
}

impl IntoSettlement for () {
    fn into_settlement(self) -> Settlement {
        Settlement::Ack
    }
}

impl IntoSettlement for Settlement {
    fn into_settlement(self) -> Settlement {
        self
    }
}

impl<T: IntoSettlement, E: fmt::Display> IntoSettlement for Result<T, E> {
    fn into_settlement(self) -> Settlement {
        match self {
            Ok(value) => value.into_settlement(),
            // `{:#}` makes an `anyhow::Error` name its causes too.
            Err(error) => Settlement::retry(format_args!("{error:#}")),
        }
    }
}

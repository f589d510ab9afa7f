//! How a handler's result settles its delivery.

use std::fmt;
use std::time::Duration;

use crate::model::due::Due;
use crate::model::message::Message;

/// How a delivery is to be settled: what a handler returns, directly or through [`IntoSettlement`].
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
    /// Done: the message is gone.
    Ack,
    /// Done, and these messages follow: both in one step, as
    /// [`Delivery::ack_push`](crate::Delivery::ack_push). If one of them is refused, the delivery is
    /// settled with a retry and that error.
    AckAnd(Vec<Message>),
    /// Done for this time: due again then, with no attempts counted.
    Again(Due),
    /// Failed: due again after this delay, or the worker's if there is none; dead at the limit of
    /// attempts.
    Retry {
        /// The delay; `None` for the worker's [`Retry`](crate::Retry).
        after: Option<Duration>,
        /// The error, of which the queue keeps the first 1,024 bytes with the message.
        error: String,
    },
    /// Not done, and no attempt counted: due at once.
    Release,
    /// Failed for good: dead at once, for this reason.
    Bury(String),
    /// Not done, and no attempt counted: due again then, as [`Delivery::snooze`](crate::Delivery::snooze).
    Snooze(Due),
    /// Not done, and no attempt counted: no message of the queue starts for this long, as
    /// [`Delivery::throttle`](crate::Delivery::throttle).
    Throttle(Duration),
}

impl Settlement {
    /// Done, and these messages follow, 100 at most: each step of a process pushes the next one.
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

    /// Due again at this time or after this delay, with no attempts counted.
    pub fn again(due: impl Into<Due>) -> Self {
        Self::Again(due.into())
    }

    /// Failed, to be retried after the worker's delay.
    pub fn retry(error: impl fmt::Display) -> Self {
        Self::Retry {
            after: None,
            error: error.to_string(),
        }
    }

    /// Failed, to be retried after this delay.
    pub fn retry_after(after: Duration, error: impl fmt::Display) -> Self {
        Self::Retry {
            after: Some(after),
            error: error.to_string(),
        }
    }

    /// Due again at this time or after this delay, with its attempts as they are.
    pub fn snooze(due: impl Into<Due>) -> Self {
        Self::Snooze(due.into())
    }

    /// The receiver asks for a break, such as by `429 Too Many Requests` with `Retry-After`: the
    /// message waits, and so does its queue.
    pub fn throttle(duration: Duration) -> Self {
        Self::Throttle(duration)
    }

    /// Dead at once, for this reason.
    pub fn bury(reason: impl Into<String>) -> Self {
        Self::Bury(reason.into())
    }
}

/// What a handler may return: nothing, a [`Settlement`], or a `Result` of either, whose error
/// becomes a retry.
///
/// The text of the error is stored beside the message, its first 1,024 bytes:
/// [`StoredMessage::error`](crate::StoredMessage::error). The text is that of `{:#}`, which for an
/// `anyhow::Error` contains all its causes. Most other errors print only themselves.
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
            // The alternate form of `anyhow::Error` also names the causes.
            Err(error) => Settlement::retry(format_args!("{error:#}")),
        }
    }
}

//! The builder of a single push.

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;

use crate::error::Error;
use crate::model::codec::{Codec, RawBytes};
use crate::model::message::Message;
use crate::model::options::push_options;
use crate::model::receipt::Receipt;
use crate::queue::Queue;
use crate::telemetry::metrics::Counter;

/// A push that is sent when it is awaited; made by [`Queue::push`]. Its options are those of a
/// [`Message`].
///
/// Without an id the message gets a UUIDv7 in 22 characters. Without a due time it is due at once.
///
/// ```
/// # dueq_testkit::doctest!(|orders| {
/// use dueq::{Durability, OnConflict};
/// use std::time::Duration;
///
/// let receipt = orders
///     .push("rate it")
///     .id("order:42")
///     .delay(Duration::from_secs(48 * 3600))
///     .max_attempts(5)
///     .on_conflict(OnConflict::Reschedule)
///     .durability(Durability::Memory)
///     .await?;
/// assert_eq!(receipt.id(), "order:42");
/// # });
/// ```
#[must_use = "a push is sent when it is awaited"]
pub struct Push<'a, C = RawBytes> {
    queue: &'a Queue<C>,
    message: Result<Message, Error>,
}

impl<'a, C: Codec> Push<'a, C> {
    pub(crate) fn new(queue: &'a Queue<C>, message: Result<Message, Error>) -> Self {
        Self { queue, message }
    }

    push_options!();

    fn with(mut self, change: impl FnOnce(&mut Message)) -> Self {
        if let Ok(message) = &mut self.message {
            change(message);
        }
        self
    }
}

impl<'a, C: Codec> IntoFuture for Push<'a, C> {
    type Output = Result<Receipt, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { queue, message } = self;
        Box::pin(async move {
            let refused = |_: &Error| queue.router().meters().add(Counter::PushRefused);
            queue.push_message(message.inspect_err(refused)?).await
        })
    }
}

impl<C: Codec> fmt::Debug for Push<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Push")
            .field("queue", &self.queue.name())
            .field("message", &self.message)
            .finish()
    }
}

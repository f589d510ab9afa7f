//! The builder of one push.

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::time::Duration;

use crate::error::Error;
use crate::model::codec::{Codec, RawBytes};
use crate::model::due::Due;
use crate::model::durability::Durability;
use crate::model::expiry::OnExpire;
use crate::model::message::{Message, OnConflict};
use crate::model::receipt::Receipt;
use crate::queue::Queue;
use crate::telemetry::metrics::Counter;

/// A push that is sent when it is awaited; made by [`Queue::push`].
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

    /// The id, as [`Message::id`]. A dead message keeps its id taken: then the push returns
    /// `Exists(Dead)` and stores nothing.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// let receipt = orders.push("rate it").id("order:42").await?;
    /// assert_eq!(receipt.id(), "order:42");
    /// # });
    /// ```
    pub fn id(self, id: impl AsRef<[u8]>) -> Self {
        self.with(|message| message.id(id))
    }

    /// How long after the server receives the message it is due: at most 100 years. Fractions of a
    /// millisecond are rounded up.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use std::time::Duration;
    ///
    /// orders.push("rate it").delay(Duration::from_secs(48 * 3600)).await?;
    /// # });
    /// ```
    pub fn delay(self, delay: Duration) -> Self {
        self.due(delay)
    }

    /// When the message is due, as [`Message::due`].
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::Due;
    ///
    /// let receipt = orders.push("rate it").due(Due::at_ms(2_000_000_000_000)).await?;
    /// assert_eq!(receipt.due_ms(), Some(2_000_000_000_000));
    /// # });
    /// ```
    pub fn due(self, due: impl Into<Due>) -> Self {
        self.with(|message| message.due(due))
    }

    /// Makes the message due up to `window` later, by its id, as [`Message::spread`].
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use std::time::Duration;
    ///
    /// let remind = orders.push("sale").id("sale:7").delay(Duration::from_secs(3600));
    /// remind.spread(Duration::from_secs(30)).await?;
    /// # });
    /// ```
    pub fn spread(self, window: Duration) -> Self {
        self.with(|message| message.spread(window))
    }

    /// The limit of failed attempts, as [`Message::max_attempts`]. By default the queue's limit
    /// applies: 20 unless [`Limits::max_attempts`](crate::QueueLimits::max_attempts) set another.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// orders.push("charge the card").max_attempts(3).await?;
    /// # });
    /// ```
    pub fn max_attempts(self, max_attempts: u32) -> Self {
        self.with(|message| message.max_attempts(max_attempts))
    }

    /// What to do if a message with this id waits already, as [`Message::on_conflict`].
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::OnConflict;
    /// use dueq::outcomes::PushOutcome;
    /// use std::time::Duration;
    ///
    /// let remind = || orders.push("remind").id("cart:7").delay(Duration::from_secs(1800));
    /// remind().await?;
    /// // The customer is active again: the reminder moves.
    /// let receipt = remind().on_conflict(OnConflict::Reschedule).await?;
    /// assert_eq!(receipt.outcome(), PushOutcome::Moved);
    /// # });
    /// ```
    pub fn on_conflict(self, on_conflict: OnConflict) -> Self {
        self.with(|message| message.on_conflict(on_conflict))
    }

    /// The durability of this push, instead of the queue's.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::Durability;
    ///
    /// let orders = orders.durability(Durability::Replicated {
    ///     replicas: 1,
    ///     timeout: std::time::Duration::from_secs(1),
    /// });
    /// // This one need not wait for the replica:
    /// orders.push("rate it").durability(Durability::Memory).await?;
    /// # });
    /// ```
    pub fn durability(self, durability: Durability) -> Self {
        self.with(|message| message.durability(durability))
    }

    /// The trace of the push, as [`Message::trace_parent`].
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    /// orders.push("rate it").trace_parent(header).await?;
    /// # });
    /// ```
    pub fn trace_parent(self, trace_parent: impl Into<String>) -> Self {
        self.with(|message| message.trace_parent(trace_parent))
    }

    /// No attempt starts later than this after the due time, as [`Message::expires_after`].
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use std::time::Duration;
    ///
    /// let hour = Duration::from_secs(3_600);
    /// orders.push("your table is free").delay(24 * hour).expires_after(2 * hour).await?;
    /// # });
    /// ```
    pub fn expires_after(self, time: Duration) -> Self {
        self.with(|message| message.expires_after(time))
    }

    /// No attempt starts after this moment, in Unix milliseconds of the server, as
    /// [`Message::expires_at`].
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client, orders| {
    /// let in_an_hour = client.server_time().await?.now_ms() + 3_600_000;
    /// orders.push("sale").expires_at(in_an_hour).await?;
    /// # });
    /// ```
    pub fn expires_at(self, unix_ms: u64) -> Self {
        self.with(|message| message.expires_at(unix_ms))
    }

    /// What becomes of the message when it expires, as [`Message::on_expire`].
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::OnExpire;
    /// use std::time::Duration;
    ///
    /// let tick = orders.push("tick").expires_after(Duration::from_secs(60));
    /// tick.on_expire(OnExpire::Drop).await?;
    /// # });
    /// ```
    pub fn on_expire(self, on_expire: OnExpire) -> Self {
        self.with(|message| message.on_expire(on_expire))
    }

    /// How many starts of the queue's rate each attempt uses, as [`Message::cost`].
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// orders.push("export with 50 pages").cost(50).await?;
    /// # });
    /// ```
    pub fn cost(self, cost: u32) -> Self {
        self.with(|message| message.cost(cost))
    }

    /// For how long the queue remembers the id, as [`Message::window`].
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use std::time::Duration;
    ///
    /// let hour = Duration::from_secs(3_600);
    /// assert!(orders.push("report").id("report:7").window(hour).await?.is_created());
    /// # });
    /// ```
    pub fn window(self, window: Duration) -> Self {
        self.with(|message| message.window(window))
    }

    /// Stores the message although a window remembers its id, as [`Message::reuse`].
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// orders.push("report, corrected").id("report:7").reuse().await?;
    /// # });
    /// ```
    pub fn reuse(self) -> Self {
        self.with(Message::reuse)
    }

    /// Delays the message, and replaces one that waits, as [`Message::debounce`].
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use std::time::Duration;
    ///
    /// orders.push("index").id("doc:7").debounce(Duration::from_secs(5)).await?;
    /// # });
    /// ```
    pub fn debounce(self, delay: Duration) -> Self {
        self.with(|message| message.debounce(delay))
    }

    /// How much later than the first push the message may become due, as [`Message::max_wait`].
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use std::time::Duration;
    ///
    /// let index = orders.push("index").id("doc:7").debounce(Duration::from_secs(5));
    /// index.max_wait(Duration::from_secs(60)).await?;
    /// # });
    /// ```
    pub fn max_wait(self, max_wait: Duration) -> Self {
        self.with(|message| message.max_wait(max_wait))
    }

    /// Replaces also a dead message of this id, as [`Message::revive`].
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::OnConflict;
    ///
    /// orders.push("index").id("doc:7").on_conflict(OnConflict::Replace).revive().await?;
    /// # });
    /// ```
    pub fn revive(self) -> Self {
        self.with(Message::revive)
    }

    fn with(self, change: impl FnOnce(Message) -> Message) -> Self {
        Self {
            message: self.message.map(change),
            ..self
        }
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

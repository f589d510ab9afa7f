//! The options of a message, declared once for [`Message`](crate::Message) and
//! [`Push`](crate::Push).

/// The methods that set options, for a type with a method
/// `with(self, impl FnOnce(&mut Message)) -> Self`.
macro_rules! push_options {
    () => {
        /// The id, unique within the queue: 1 to 200 bytes without control bytes. Checked at the
        /// push.
        ///
        /// The id makes a push safe to repeat. Cancel and reschedule name the message by it.
        ///
        /// A dead message keeps its id: until it is removed, a push of the id returns
        /// [`PushOutcome::Exists`](crate::outcomes::PushOutcome::Exists) with
        /// [`MessageState::Dead`](crate::MessageState::Dead). The queue keeps the newest 100,000
        /// dead messages, for 30 days, unless [`QueueLimits`](crate::QueueLimits) set other limits.
        /// To free the id earlier, call [`Queue::cancel_dead`](crate::Queue::cancel_dead). To
        /// deliver the dead message again, call [`Queue::requeue`](crate::Queue::requeue).
        ///
        /// ```
        /// # dueq_testkit::doctest!(|orders| {
        /// let receipt = orders.push("rate it").id("order:42").await?;
        /// assert_eq!(receipt.id(), "order:42");
        /// # });
        /// ```
        pub fn id(self, id: impl AsRef<[u8]>) -> Self {
            self.with(|message| message.id = Some(id.as_ref().to_vec()))
        }

        /// How long after the server receives the message it is due: at most 100 years. Fractions
        /// of a millisecond are rounded up.
        ///
        /// ```
        /// # dueq_testkit::doctest!(|orders| {
        /// use std::time::Duration;
        ///
        /// orders.push("rate it").delay(Duration::from_secs(48 * 3600)).await?;
        /// # });
        /// ```
        pub fn delay(self, delay: std::time::Duration) -> Self {
            self.due(delay)
        }

        /// When the message is due: a [`Duration`](std::time::Duration) from now, a
        /// [`SystemTime`](std::time::SystemTime), or a [`Due`](crate::Due).
        ///
        /// ```
        /// # dueq_testkit::doctest!(|orders| {
        /// use dueq::Due;
        ///
        /// let receipt = orders.push("rate it").due(Due::at_ms(2_000_000_000_000)).await?;
        /// assert_eq!(receipt.due_ms(), Some(2_000_000_000_000));
        /// # });
        /// ```
        pub fn due(self, due: impl Into<crate::model::due::Due>) -> Self {
            self.with(|message| message.due = due.into())
        }

        /// Makes the message due up to `window` later, never earlier: for many messages with one
        /// due time, such as a campaign, that would otherwise be due in one millisecond.
        ///
        /// How much later depends on the id alone, so that a repeated push asks for the same due
        /// time: `crc32("spread" + id) % (window in ms + 1)` milliseconds, with the CRC-32 of zlib.
        /// Windows above 49 days have the effect of 49 days. Due time and window together reach at
        /// most 100 years ahead. Fractions of a millisecond do not count. Checked at the push.
        ///
        /// ```
        /// # dueq_testkit::doctest!(|orders| {
        /// use std::time::Duration;
        ///
        /// let remind = orders.push("sale").id("sale:7").delay(Duration::from_secs(3600));
        /// remind.spread(Duration::from_secs(30)).await?;
        /// # });
        /// ```
        pub fn spread(self, window: std::time::Duration) -> Self {
            let spread_ms = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
            self.with(|message| message.spread_ms = spread_ms)
        }

        /// After how many failed attempts the message is dead: 1 to 1,000,000. Checked at the push.
        /// By default the queue's limit applies: 20 unless
        /// [`QueueLimits::max_attempts`](crate::QueueLimits::max_attempts) was set.
        ///
        /// ```
        /// # dueq_testkit::doctest!(|orders| {
        /// orders.push("charge the card").max_attempts(3).await?;
        /// # });
        /// ```
        pub fn max_attempts(self, max_attempts: u32) -> Self {
            self.with(|message| message.max_attempts = Some(max_attempts))
        }

        /// What to do if a message with this id waits already;
        /// [`OnConflict::Keep`](crate::OnConflict::Keep) unless set.
        ///
        /// If the id is not in the queue, the message is stored as by any push. If a handler has
        /// the message, the push returns `Exists(Leased)` and changes nothing, except with
        /// [`OnConflict::Next`](crate::OnConflict::Next). Pushes with `Keep` and other pushes
        /// travel apart and may reach Redis in any order, unless the caller awaits the first one. A
        /// push with `Reschedule` or `Replace` is not repeated by the library when its reply is
        /// lost: the error says [`Applied::Unknown`](crate::Applied::Unknown).
        ///
        /// ```
        /// # dueq_testkit::doctest!(|orders| {
        /// use dueq::{OnConflict, outcomes::PushOutcome};
        /// use std::time::Duration;
        ///
        /// let remind = || orders.push("remind").id("cart:7").delay(Duration::from_secs(1800));
        /// remind().await?;
        /// // The customer is active again: the reminder moves.
        /// let receipt = remind().on_conflict(OnConflict::Reschedule).await?;
        /// assert_eq!(receipt.outcome(), PushOutcome::Moved);
        /// # });
        /// ```
        pub fn on_conflict(self, on_conflict: crate::model::push_rules::OnConflict) -> Self {
            self.with(|message| message.on_conflict = on_conflict)
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
        pub fn durability(self, durability: crate::model::durability::Durability) -> Self {
            self.with(|message| message.durability = Some(durability))
        }

        /// The trace of the push, as [W3C Trace
        /// Context](https://www.w3.org/TR/trace-context/#traceparent-header) writes it in the header
        /// `traceparent`: `00-`, 32 hexadecimal digits of the trace, `-`, 16 of the span, `-`, 2 of
        /// flags, all lower case, trace and span not all zero. Checked at the push.
        ///
        /// The trace is stored with the message through every attempt, and the handler reads it
        /// with [`Delivery::trace_parent`](crate::Delivery::trace_parent).
        /// [`OnConflict::Reschedule`](crate::OnConflict::Reschedule) keeps the trace of the waiting
        /// message. A trace takes about 120 bytes of Redis's memory. `tracestate` and baggage are
        /// not stored.
        ///
        /// ```
        /// # dueq_testkit::doctest!(|orders| {
        /// let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        /// orders.push("rate it").trace_parent(header).await?;
        /// # });
        /// ```
        pub fn trace_parent(self, trace_parent: impl Into<String>) -> Self {
            self.with(|message| message.trace_parent = Some(trace_parent.into()))
        }

        /// The message expires this long after its due time; no attempt starts later: 1 ms to 100
        /// years, with fractions of a millisecond rounded up. Checked at the push.
        ///
        /// The deadline holds for retries too: a retry or snooze beyond it makes the message dead
        /// at once. A reschedule, `again` and a requeue give the message a new due time, from which
        /// the time counts again. A running handler is not interrupted: see
        /// [`Delivery::expires_in`](crate::Delivery::expires_in). An expired message is found when
        /// it would be claimed; while no worker runs, it stays.
        ///
        /// ```
        /// # dueq_testkit::doctest!(|orders| {
        /// use std::time::Duration;
        ///
        /// let hour = Duration::from_secs(3_600);
        /// orders.push("your table is free").delay(24 * hour).expires_after(2 * hour).await?;
        /// # });
        /// ```
        pub fn expires_after(self, time: std::time::Duration) -> Self {
            let ms = crate::model::due::ceil_ms(time);
            let expires = crate::model::push_rules::Expires::AfterMs(ms);
            self.with(|message| message.expires = Some(expires))
        }

        /// The message expires at this moment, in Unix milliseconds of the server; no attempt
        /// starts later. The moment must not have passed, must not be before the due time, and may
        /// be at most 100 years ahead. Checked at the push.
        ///
        /// A new due time does not move this moment, in contrast to
        /// [`expires_after`](Self::expires_after). A requeue after the moment removes the expiry.
        ///
        /// ```
        /// # dueq_testkit::doctest!(|client, orders| {
        /// let in_an_hour = client.server_time().await?.now_ms() + 3_600_000;
        /// orders.push("sale").expires_at(in_an_hour).await?;
        /// # });
        /// ```
        pub fn expires_at(self, unix_ms: u64) -> Self {
            let expires = crate::model::push_rules::Expires::AtMs(unix_ms);
            self.with(|message| message.expires = Some(expires))
        }

        /// What becomes of the message when it expires;
        /// [`OnExpire::Dead`](crate::OnExpire::Dead) unless set. `Drop` needs `expires_after` or
        /// `expires_at`; checked at the push.
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
        pub fn on_expire(self, on_expire: crate::model::push_rules::OnExpire) -> Self {
            self.with(|message| message.on_expire = on_expire)
        }

        /// How many starts of the queue's [rate](crate::QueueLimits::rate) each attempt uses: 1 to
        /// 1,000,000, and at most the rate's burst; 1 unless set. Without a rate it has no effect.
        /// Checked at the push.
        ///
        /// If the burst is lowered later, the message costs a whole burst.
        ///
        /// ```
        /// # dueq_testkit::doctest!(|orders| {
        /// orders.push("export with 50 pages").cost(50).await?;
        /// # });
        /// ```
        pub fn cost(self, cost: u32) -> Self {
            self.with(|message| message.cost = Some(cost))
        }

        /// The queue remembers the id for this long after it stores the message: 1 ms to 30 days,
        /// with fractions of a millisecond rounded up. Checked at the push.
        ///
        /// Until then another push of the id stores nothing, whatever became of the message: it
        /// returns [`PushOutcome::Exists`](crate::outcomes::PushOutcome::Exists) while the message
        /// is in the queue, and
        /// [`PushOutcome::Remembered`](crate::outcomes::PushOutcome::Remembered) afterwards. An
        /// ack, a death and an expiry leave the window open; a cancel and a purge end it. The
        /// window counts from the push that stored the message; later pushes do not extend it.
        /// [`Queue::end_of`](crate::Queue::end_of) returns how the message ended.
        ///
        /// An id that is remembered takes about 100 bytes of Redis's memory. The queue remembers
        /// [`QueueLimits::max_remembered`](crate::QueueLimits::max_remembered) ids; beyond them a
        /// push with a window fails with [`ErrorKind::Full`](crate::ErrorKind::Full). A change of
        /// the queue's partitions forgets the windows of ids that move.
        ///
        /// ```
        /// # dueq_testkit::doctest!(|orders| {
        /// use dueq::outcomes::PushOutcome;
        /// use std::time::Duration;
        ///
        /// let hourly = || orders.push("report").id("report:7").window(Duration::from_secs(3_600));
        /// assert!(hourly().await?.is_created());
        /// for delivery in orders.claim(1, Duration::from_secs(30)).await? {
        ///     delivery.ack().await?;
        /// }
        /// assert!(matches!(hourly().await?.outcome(), PushOutcome::Remembered(_until_ms)));
        /// # });
        /// ```
        pub fn window(self, window: std::time::Duration) -> Self {
            let window_ms = crate::model::due::ceil_ms(window);
            self.with(|message| message.unique.window_ms = Some(window_ms))
        }

        /// Stores the message even if the window of an earlier push still remembers the id. A
        /// message of this id that is in the queue is a conflict as usual.
        ///
        /// ```
        /// # dueq_testkit::doctest!(|orders| {
        /// orders.push("report, corrected").id("report:7").reuse().await?;
        /// # });
        /// ```
        pub fn reuse(self) -> Self {
            self.with(|message| message.unique.reuse = true)
        }

        /// Delays the message, and replaces one of the same id that waits: a burst of pushes
        /// becomes one delivery with the last payload, `delay` after the last push.
        ///
        /// This is short for `due(delay)` and `on_conflict(OnConflict::Replace)`. Without
        /// `max_wait` pushes that never pause postpone the delivery for ever.
        ///
        /// ```
        /// # dueq_testkit::doctest!(|orders| {
        /// use dueq::outcomes::PushOutcome;
        /// use std::time::Duration;
        ///
        /// let index = |text: &str| orders.push(text).id("doc:7").debounce(Duration::from_secs(5));
        /// index("first draft").await?;
        /// assert_eq!(index("second draft").await?.outcome(), PushOutcome::Moved);
        /// # });
        /// ```
        pub fn debounce(self, delay: std::time::Duration) -> Self {
            self.due(delay)
                .on_conflict(crate::model::push_rules::OnConflict::Replace)
        }

        /// Limits how far later pushes of the id can postpone the message, counted from its first
        /// push: 1 ms to 100 years, and at least the delay. Fractions of a millisecond are rounded
        /// up. Needs an `on_conflict` other than `Keep`. Checked at the push.
        ///
        /// The first push with a `max_wait` sets the limit. It holds until the message has failed,
        /// crashed or been snoozed, also for pushes without a `max_wait`.
        /// [`Queue::reschedule`](crate::Queue::reschedule) is not bound by it.
        /// [`StoredMessage::due_by_ms`](crate::StoredMessage::due_by_ms) shows it.
        ///
        /// ```
        /// # dueq_testkit::doctest!(|orders| {
        /// use std::time::Duration;
        ///
        /// let index = orders.push("index").id("doc:7").debounce(Duration::from_secs(5));
        /// index.max_wait(Duration::from_secs(60)).await?;
        /// # });
        /// ```
        pub fn max_wait(self, max_wait: std::time::Duration) -> Self {
            let max_wait_ms = crate::model::due::ceil_ms(max_wait);
            self.with(|message| message.unique.max_wait_ms = Some(max_wait_ms))
        }

        /// Lets the push also replace a dead message of this id: the new message waits, with no
        /// attempts. Needs [`OnConflict::Replace`](crate::OnConflict::Replace) or
        /// [`OnConflict::Next`](crate::OnConflict::Next). Checked at the push.
        ///
        /// By default a push of an id whose message is dead returns `Exists(Dead)`.
        ///
        /// ```
        /// # dueq_testkit::doctest!(|orders, delivery| {
        /// use dueq::{OnConflict, outcomes::PushOutcome};
        ///
        /// delivery.bury("the index is read-only").await?;
        /// let index = orders.push("index").id("order:42").on_conflict(OnConflict::Replace);
        /// assert_eq!(index.revive().await?.outcome(), PushOutcome::Moved);
        /// # });
        /// ```
        pub fn revive(self) -> Self {
            self.with(|message| message.unique.revive = true)
        }
    };
}

pub(crate) use push_options;

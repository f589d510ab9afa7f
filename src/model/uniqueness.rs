//! How long an id is taken, and what bounds a debounce.

use std::time::Duration;

use crate::model::due::ceil_ms;
use crate::model::message::{Message, OnConflict};

/// The options of a push that concern other pushes of the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Uniqueness {
    pub(crate) window_ms: Option<u64>,
    pub(crate) reuse: bool,
    pub(crate) max_wait_ms: Option<u64>,
    pub(crate) revive: bool,
    pub(crate) undo_ms: Option<u64>,
}

impl Uniqueness {
    /// The options as the scripts read them.
    pub(crate) fn words(self) -> impl Iterator<Item = String> {
        [
            self.window_ms.map(|ms| format!("window={ms}")),
            self.max_wait_ms.map(|ms| format!("max_wait={ms}")),
            self.reuse.then(|| "reuse".to_owned()),
            self.revive.then(|| "revive".to_owned()),
            self.undo_ms.map(|ms| format!("undo={ms}")),
        ]
        .into_iter()
        .flatten()
    }
}

impl Message {
    /// The queue remembers the id for this long after it stores the message: 1 ms to 30 days, with
    /// fractions of a millisecond rounded up. Checked at the push.
    ///
    /// Until then another push of the id stores nothing, whatever became of the message: it returns
    /// [`PushOutcome::Exists`](crate::outcomes::PushOutcome::Exists) while the message is in the queue, and
    /// [`PushOutcome::Remembered`](crate::outcomes::PushOutcome::Remembered) afterwards. An ack, a death and an expiry
    /// leave the window open; a cancel and a purge end it. The window counts from the push that
    /// stored the message; later pushes do not extend it. [`Queue::end_of`](crate::Queue::end_of)
    /// tells how the message ended.
    ///
    /// An id that is remembered takes about 100 bytes of Redis's memory. The queue remembers
    /// [`Limits::max_remembered`](crate::QueueLimits::max_remembered) ids; beyond them a push with a window
    /// fails with [`ErrorKind::Full`](crate::ErrorKind::Full). A change of the queue's partitions
    /// forgets the windows of ids that move.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::Message;
    /// use dueq::outcomes::PushOutcome;
    /// use std::time::Duration;
    ///
    /// let hourly = Message::new("report").id("report:7").window(Duration::from_secs(3_600));
    /// assert!(orders.push_message(hourly.clone()).await?.is_created());
    /// for delivery in orders.claim(1, Duration::from_secs(30)).await? {
    ///     delivery.ack().await?;
    /// }
    /// let again = orders.push_message(hourly).await?;
    /// assert!(matches!(again.outcome(), PushOutcome::Remembered(_until_ms)));
    /// # });
    /// ```
    #[must_use]
    pub fn window(mut self, window: Duration) -> Self {
        self.unique.window_ms = Some(ceil_ms(window));
        self
    }

    /// Stores the message although an earlier push's [`window`](Message::window) remembers the id.
    /// A message of this id that is in the queue still counts.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::Message;
    /// use std::time::Duration;
    ///
    /// let report = Message::new("report").id("report:7").window(Duration::from_secs(3_600));
    /// assert!(orders.push_message(report.clone()).await?.is_created());
    /// for delivery in orders.claim(1, Duration::from_secs(30)).await? {
    ///     delivery.ack().await?;
    /// }
    /// assert!(orders.push_message(report.reuse()).await?.is_created());
    /// # });
    /// ```
    #[must_use]
    pub fn reuse(mut self) -> Self {
        self.unique.reuse = true;
        self
    }

    /// Delays the message, and replaces one of the same id that waits: a burst of pushes becomes one
    /// delivery with the last payload, `delay` after the last push.
    ///
    /// It is short for [`due(delay)`](Message::due) and
    /// [`on_conflict(OnConflict::Replace)`](Message::on_conflict). Without
    /// [`max_wait`](Message::max_wait) pushes that never pause postpone the delivery for ever.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::Message;
    /// use dueq::outcomes::PushOutcome;
    /// use std::time::Duration;
    ///
    /// let (pause, limit) = (Duration::from_secs(5), Duration::from_secs(60));
    /// let index = |text: &str| Message::new(text).id("doc:7").debounce(pause).max_wait(limit);
    /// orders.push_message(index("first draft")).await?;
    /// let receipt = orders.push_message(index("second draft")).await?;
    /// assert_eq!(receipt.outcome(), PushOutcome::Moved);
    /// # });
    /// ```
    #[must_use]
    pub fn debounce(self, delay: Duration) -> Self {
        self.due(delay).on_conflict(OnConflict::Replace)
    }

    /// Pushes that reschedule or replace the message postpone it no further than this after the first
    /// one: 1 ms to 100 years, and at least the delay. Fractions of a millisecond are rounded up.
    /// Needs an [`on_conflict`](Message::on_conflict) other than `Keep`. Checked at the push.
    ///
    /// The first push with a `max_wait` sets the limit. It holds until the message has failed, crashed
    /// or been snoozed, also for pushes without a `max_wait`. [`Queue::reschedule`](crate::Queue::reschedule)
    /// is not bound by it. [`Stored::due_by_ms`](crate::StoredMessage::due_by_ms) shows it.
    ///
    /// ```
    /// use dueq::Message;
    /// use std::time::Duration;
    ///
    /// let message = Message::new("index").id("doc:7").debounce(Duration::from_secs(5));
    /// let message = message.max_wait(Duration::from_secs(60));
    /// # let _ = message;
    /// ```
    #[must_use]
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.unique.max_wait_ms = Some(ceil_ms(max_wait));
        self
    }

    /// Replaces also a dead message of this id: it waits again, with its attempts counted from
    /// none. Needs [`OnConflict::Replace`] or [`OnConflict::Next`]. Checked at the push.
    ///
    /// By default a push of an id whose message is dead returns `Exists(Dead)`.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// use dueq::{Message, OnConflict};
    /// use dueq::outcomes::PushOutcome;
    ///
    /// delivery.bury("the index is read-only").await?;
    /// let retry = Message::new("index").id("order:42").on_conflict(OnConflict::Replace).revive();
    /// assert_eq!(orders.push_message(retry).await?.outcome(), PushOutcome::Moved);
    /// # });
    /// ```
    #[must_use]
    pub fn revive(mut self) -> Self {
        self.unique.revive = true;
        self
    }

    /// Stores the message only to undo a cancel: if nothing has happened to its id since, neither a
    /// push nor another caller's cancel. `cancelled_ms` is the time from
    /// [`Queue::cancel_to_undo`](crate::Queue::cancel_to_undo), at most 12 s ago.
    ///
    /// Otherwise the push returns [`PushOutcome::Finished`](crate::outcomes::PushOutcome::Finished), or `Exists` if the
    /// queue has a message of the id. Attempts of the message count from none. Clients of release
    /// 0.1 that repeat its cancel are not noticed.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::Message;
    /// use std::time::Duration;
    ///
    /// let rating = Message::new("rate it").id("order:42").due(Duration::from_secs(60));
    /// assert!(orders.push_message(rating.clone()).await?.is_created());
    /// let (_cancelled, ms) = orders.cancel_to_undo("order:42").await?;
    /// assert!(orders.push_message(rating.undo(ms)).await?.is_created());
    /// # });
    /// ```
    #[must_use]
    pub fn undo(mut self, cancelled_ms: u64) -> Self {
        self.unique.undo_ms = Some(cancelled_ms);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniqueness_options_are_words_of_the_script() {
        let message = Message::new("")
            .window(Duration::from_micros(1))
            .reuse()
            .debounce(Duration::from_secs(5))
            .max_wait(Duration::from_secs(60))
            .revive()
            .undo(7);
        assert_eq!(
            message.options(),
            "on_conflict=replace window=1 max_wait=60000 reuse revive undo=7"
        );
        assert!(!message.is_repeatable());
        let next = Message::new("").on_conflict(OnConflict::Next);
        assert_eq!(next.options(), "on_conflict=next");
        assert!(next.is_repeatable());
    }
}

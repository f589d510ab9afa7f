//! Messages as a queue stores them: a single one, and pages of them.

use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::model::life::LifeEvent;
use crate::model::outcomes::MessageState;
use crate::model::push_rules::OnExpire;

/// A message as the queue stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredMessage {
    /// The state of the message.
    pub state: MessageState,
    /// When the message is due (scheduled, ready), when its lease ends (leased) or when it died
    /// (dead), in Unix milliseconds.
    pub time_ms: u64,
    /// How often a handler of the message failed.
    pub failures: u32,
    /// How often a lease of the message expired.
    pub crashes: u32,
    /// The message's own limit of attempts, if it has one.
    pub max_attempts: Option<u32>,
    /// The trace of its push, if the push set one.
    pub trace_parent: Option<String>,
    /// When the message expires, in Unix milliseconds. `None` if it does not expire. Also `None`
    /// for a leased or dead message with `expires_after`, because its due time is no longer stored,
    /// unless a retry or a snooze has fixed the moment.
    pub expires_at_ms: Option<u64>,
    /// How many milliseconds after its due time the message expires, if its push set such a time.
    pub expires_after_ms: Option<u64>,
    /// What becomes of the message when it expires.
    pub on_expire: OnExpire,
    /// How many starts of the queue's rate each attempt uses.
    pub cost: u32,
    /// How often a handler snoozed the message.
    pub snoozes: u32,
    /// For how many milliseconds after the push the queue remembers the id, if the push set a
    /// window.
    pub window_ms: Option<u64>,
    /// The latest due time to which pushes can postpone the message, in Unix milliseconds, if a
    /// push with [`max_wait`](crate::Message::max_wait) set one.
    pub due_by_ms: Option<u64>,
    /// When the next message of this id is due, in Unix milliseconds: one that a push with
    /// [`OnConflict::Next`](crate::OnConflict::Next) left while this message is leased.
    pub next_due_ms: Option<u64>,
    /// The lease of the message, if a handler has it.
    pub lease: Option<LeaseInfo>,
    /// The error of the last failure, or the reason of the burial.
    pub error: String,
    /// The payload as it was pushed, not decoded. For a message of
    /// [`Client::queue_of`](crate::Client::queue_of) see [`json`](StoredMessage::json). Only its
    /// first bytes if [`Queue::get_up_to`](crate::Queue::get_up_to) asked for fewer than there are.
    pub payload: Vec<u8>,
    /// How many bytes the whole payload has.
    pub payload_bytes: u64,
    /// What happened to the message, the latest last: its last 20 events. Empty unless the queue
    /// [keeps lives](crate::QueueLimits::keep_life_for).
    pub life: Vec<LifeEvent>,
}

impl StoredMessage {
    /// The payload, parsed as JSON.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if it is not the JSON of a `T`.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// let orders = client.queue_of::<u64>("orders")?;
    /// orders.push(42_u64).id("order:42").await?;
    /// if let Some(stored) = orders.get("order:42").await? {
    ///     println!("order {} is {}", stored.json::<u64>()?, stored.state);
    ///     # assert_eq!(stored.json::<u64>()?, 42);
    /// }
    /// # });
    /// ```
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_slice(&self.payload).map_err(|error| {
            Error::invalid(format!("the payload is not the expected JSON: {error}"))
        })
    }
}

/// A message in a [`MessagePage`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageEntry {
    /// The id as it was pushed.
    pub id: Vec<u8>,
    /// When the message is due, when its lease ends or when it died: see
    /// [`StoredMessage::time_ms`].
    pub time_ms: u64,
    /// How often a handler of the message failed.
    pub failures: u32,
    /// How often a lease of the message expired.
    pub crashes: u32,
    /// The error of the last failure, or the reason of the burial.
    pub error: String,
    /// The lease of the message, if a handler has it.
    pub lease: Option<LeaseInfo>,
}

/// The lease of a leased message, without its token: a reader cannot settle the message by it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LeaseInfo {
    /// The name of the lease: 16 hexadecimal digits. All messages of a claim have the same, and no
    /// other claim has it: [`Queue::end_lease`](crate::Queue::end_lease) ends this lease only.
    pub name: String,
    /// The end of the id of the worker that has the message: the last 7 letters and digits before
    /// any `#`: see [`NodeInfo::id`](crate::inspect::NodeInfo::id). `None` if the
    /// [`LeaseToken`](crate::claims::LeaseToken) of the claim does not contain it: a claim by a
    /// pull, over HTTP, or by another client.
    pub node: Option<String>,
    /// When the delivery began, in Unix milliseconds: the time of its claim. `None` if scripts of
    /// an older release claimed or extended it.
    pub since_ms: Option<u64>,
    /// Whether the message will be dead when this lease ends without an ack, because an operator
    /// [buried](crate::Queue::bury) it.
    pub is_to_bury: bool,
}

impl LeaseInfo {
    /// Sets when the delivery began; 0 if that is unknown.
    pub(crate) fn began(&mut self, since_ms: u64) {
        self.since_ms = Some(since_ms).filter(|ms| *ms > 0);
    }
}

/// A page of messages in one state, in the order of their times.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessagePage {
    /// The messages.
    pub messages: Vec<MessageEntry>,
    /// The cursor of the next page; `None` at the end.
    pub next: Option<MessageCursor>,
}

/// The smallest number in a cursor that is a time. A smaller number is a position in the ready
/// list.
const MIN_TIME_MS: u64 = 1_000_000;
/// The fewest digits of a number that is a time.
const MIN_TIME_DIGITS: usize = 7;

/// Where a page ended, or where one begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageCursor(pub(crate) Vec<u8>);

impl MessageCursor {
    /// The bytes of the cursor, for instance to pass it to the next call of a program. They contain
    /// the last id of the page.
    ///
    /// ```
    /// use dueq::inspect::MessageCursor;
    ///
    /// let cursor = MessageCursor::from_bytes("1700000000000:order:42");
    /// assert_eq!(MessageCursor::from_bytes(cursor.as_bytes()), cursor);
    /// ```
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The cursor of a page that begins at this time, in Unix milliseconds:
    /// [`list`](crate::Queue::list) returns messages from it on, and
    /// [`list_newest`](crate::Queue::list_newest) those up to it.
    ///
    /// Ready messages are listed in the order in which they became ready. Their page begins at the
    /// first one that is due at or after the time; newest first, at the last one that is due at or
    /// before it.
    ///
    /// A time in the first 1,000 s of 1970 counts as their end.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::MessageState;
    /// use dueq::inspect::MessageCursor;
    /// use std::time::Duration;
    ///
    /// orders.push("rate it").delay(Duration::from_secs(60)).await?;
    /// let in_an_hour = orders.dues(&[]).await?.now_ms + 3_600_000;
    /// let from = MessageCursor::at_ms(in_an_hour);
    /// let later = orders.list(MessageState::Scheduled, Some(&from), 100).await?;
    /// let sooner = orders.list_newest(MessageState::Scheduled, Some(&from), 100).await?;
    /// assert_eq!((later.messages.len(), sooner.messages.len()), (0, 1));
    /// # });
    /// ```
    pub fn at_ms(unix_ms: u64) -> Self {
        Self(format!("{}:", unix_ms.max(MIN_TIME_MS)).into_bytes())
    }

    /// Whether the cursor is only a time, without a position in a list.
    pub(crate) fn is_time(&self) -> bool {
        let digits = self.0.strip_suffix(b":").unwrap_or_default();
        digits.len() >= MIN_TIME_DIGITS && digits.iter().all(u8::is_ascii_digit)
    }

    /// The cursor with these bytes. The server refuses invalid ones when a page is asked for.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_cursor_of_a_time_differs_from_other_cursors() {
        for ms in [0, 1, MIN_TIME_MS, 1_700_000_000_000, u64::MAX] {
            assert!(MessageCursor::at_ms(ms).is_time(), "{ms}");
        }
        assert_eq!(
            MessageCursor::at_ms(5),
            MessageCursor::from_bytes("1000000:")
        );
        for other in ["", ":", "12:", "999999:", "1700000000000:a", "7/14:1"] {
            assert!(!MessageCursor::from_bytes(other).is_time(), "{other}");
        }
    }

    #[test]
    fn stored_payload_is_read_as_json_or_is_an_error() {
        let stored = StoredMessage {
            state: MessageState::Ready,
            time_ms: 1,
            failures: 0,
            crashes: 0,
            max_attempts: None,
            trace_parent: None,
            expires_at_ms: None,
            expires_after_ms: None,
            on_expire: OnExpire::Dead,
            cost: 1,
            snoozes: 0,
            window_ms: None,
            due_by_ms: None,
            next_due_ms: None,
            lease: None,
            error: String::new(),
            payload: b"[1,2]".to_vec(),
            payload_bytes: 5,
            life: Vec::new(),
        };
        assert_eq!(stored.json::<Vec<u32>>().expect("valid"), [1, 2]);
        let error = stored.json::<u64>().expect_err("a list is no number");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}

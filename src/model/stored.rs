//! Messages as they are stored: one message, a page of messages.

use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::model::outcomes::MessageState;
use crate::model::push_rules::OnExpire;

/// A message as the queue stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredMessage {
    /// Its state.
    pub state: MessageState,
    /// When it is due (scheduled, ready), when its lease ends (leased) or when it died (dead), in
    /// Unix milliseconds.
    pub time_ms: u64,
    /// How often a handler failed.
    pub failures: u32,
    /// How often a lease ran out.
    pub crashes: u32,
    /// Its own limit of attempts, if it has one.
    pub max_attempts: Option<u32>,
    /// The trace of its push, if the push set one.
    pub trace_parent: Option<String>,
    /// When it expires, in Unix milliseconds. `None` if it does not; also of a leased or dead message
    /// that expires some time after its due time, which is not stored then, unless a retry or a snooze
    /// has fixed it.
    pub expires_at_ms: Option<u64>,
    /// How long after its due time it expires, in milliseconds, if its push said so.
    pub expires_after_ms: Option<u64>,
    /// What becomes of it when it expires.
    pub on_expire: OnExpire,
    /// How many starts of the queue's rate each attempt uses.
    pub cost: u32,
    /// How often a handler snoozed it.
    pub snoozes: u32,
    /// For how many milliseconds after its push the queue remembers its id, if the push said so.
    pub window_ms: Option<u64>,
    /// Until when pushes can postpone it, in Unix milliseconds: a push with
    /// [`max_wait`](crate::Message::max_wait) has set it.
    pub due_by_ms: Option<u64>,
    /// When the message is due that follows this one, in Unix milliseconds. Only of a leased
    /// message, if a push with [`OnConflict::Next`](crate::OnConflict::Next) has left one.
    pub next_due_ms: Option<u64>,
    /// Its lease, if a handler has it.
    pub lease: Option<LeaseInfo>,
    /// What the last failure or burial said.
    pub error: String,
    /// The payload as it was pushed, not decoded. For a message of
    /// [`Client::queue_of`](crate::Client::queue_of) see [`json`](StoredMessage::json). Only its
    /// first bytes if [`Queue::get_up_to`](crate::Queue::get_up_to) asked for fewer than there are.
    pub payload: Vec<u8>,
    /// How many bytes the whole payload has.
    pub payload_bytes: u64,
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
    /// As in [`StoredMessage::time_ms`].
    pub time_ms: u64,
    /// How often a handler failed.
    pub failures: u32,
    /// How often a lease ran out.
    pub crashes: u32,
    /// What the last failure or burial said.
    pub error: String,
    /// Its lease, if a handler has it.
    pub lease: Option<LeaseInfo>,
}

/// The lease of a leased message, as readers see it. It has no token, so it settles nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LeaseInfo {
    /// The name of the lease: 16 hexadecimal digits. All messages of a claim have the same, and no
    /// other claim has it: [`Queue::end_lease`](crate::Queue::end_lease) ends this lease only.
    pub name: String,
    /// The end of the id of the worker that has the message, 7 letters and digits before any `#`:
    /// see [`NodeInfo::id`](crate::inspect::NodeInfo::id). `None` if the
    /// [`LeaseToken`](crate::claims::LeaseToken) of the claim does not tell it: a claim by a pull,
    /// over HTTP, or by another client.
    pub node: Option<String>,
}

/// Some of the messages in one state, in the order of their times.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessagePage {
    /// The messages.
    pub messages: Vec<MessageEntry>,
    /// The cursor of the next page; `None` at the end.
    pub next: Option<MessageCursor>,
}

/// In a cursor of ready messages, a smaller number is a place in their list.
const MIN_TIME_MS: u64 = 1_000_000;
/// How many digits such a time has at least.
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

    /// Whether it is only a time, and no place in a list.
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
    fn a_cursor_of_a_time_is_told_from_others() {
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
    fn json_of_a_stored_payload_or_an_error() {
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
        };
        assert_eq!(stored.json::<Vec<u32>>().expect("valid"), [1, 2]);
        let error = stored.json::<u64>().expect_err("a list is no number");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}

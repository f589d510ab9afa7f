//! Messages as they are stored: one message, a page of messages.

use crate::model::outcomes::State;

/// A message as the queue stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stored {
    /// Its state.
    pub state: State,
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
    /// What the last failure or burial said.
    pub error: String,
    /// The payload.
    pub payload: Vec<u8>,
}

/// A message in a [`Page`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// The id as it was pushed.
    pub id: Vec<u8>,
    /// As in [`Stored::time_ms`].
    pub time_ms: u64,
    /// How often a handler failed.
    pub failures: u32,
    /// How often a lease ran out.
    pub crashes: u32,
    /// What the last failure or burial said.
    pub error: String,
}

/// Some of the messages in one state, in the order of their times.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// The messages.
    pub messages: Vec<Listed>,
    /// The cursor of the next page; `None` at the end.
    pub next: Option<Cursor>,
}

/// Where a page ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(pub(crate) Vec<u8>);

impl Cursor {
    /// The bytes of the cursor, for instance to pass it to the next call of a program. They contain
    /// the last id of the page.
    ///
    /// ```
    /// use dueq::Cursor;
    ///
    /// let cursor = Cursor::from_bytes("1700000000000:order:42");
    /// assert_eq!(Cursor::from_bytes(cursor.as_bytes()), cursor);
    /// ```
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The cursor with these bytes. The server refuses invalid ones when a page is asked for.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }
}

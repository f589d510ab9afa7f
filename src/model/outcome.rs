//! How a message ended, and what a wait for its end returns.

use crate::model::outcomes::State;

/// How the message of a remembered id ended: see [`Queue::outcome`](crate::Queue::outcome).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// How it ended.
    pub ended: Ended,
    /// When, in Unix milliseconds of the server.
    pub ended_at_ms: u64,
    /// Until when a [`window`](crate::Message::window) remembers the id, in Unix milliseconds: a push
    /// of it stores nothing before. `None` if no window does, such as after a cancel or a purge.
    pub remembered_until_ms: Option<u64>,
}

/// How a message ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ended {
    /// A handler acked it.
    Finished,
    /// It expired and was dropped, as its push asked with
    /// [`OnExpire::Drop`](crate::OnExpire::Drop).
    Expired,
    /// It was cancelled, or purged.
    Cancelled,
}

impl Ended {
    /// The word of the protocol: `finished`, `expired` or `cancelled`.
    ///
    /// ```
    /// assert_eq!(dueq::Ended::Finished.as_str(), "finished");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        [Self::Finished, Self::Expired, Self::Cancelled]
            .into_iter()
            .find(|ended| ended.as_str() == word)
    }
}

/// What [`Queue::wait`](crate::Queue::wait) found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Waited {
    /// The message ended so.
    Ended(Outcome),
    /// The message is dead: it stays in the queue, and no handler gets it.
    Dead,
    /// The queue has no message of this id, and does not remember one: it ended without a
    /// [`window`](crate::Message::window), longer ago than the queue remembers, or was never pushed.
    Absent,
    /// The time is up, and the message is still in this state.
    TimedOut(State),
}

//! The options that concern other pushes of the same id.

use std::time::Duration;

use dueq::Message;

/// The options of a message that concern other pushes of its id.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unique {
    /// How long the id is remembered, whatever becomes of the message.
    pub window: Option<Duration>,
    /// Whether the message is stored although its id is remembered.
    pub reuse: bool,
    /// How long after the first push later ones may postpone the message.
    pub max_wait: Option<Duration>,
    /// Whether the push may replace a dead message.
    pub revive: bool,
    /// The time of the cancel that the push undoes, in Unix milliseconds.
    pub undo_ms: Option<u64>,
}

impl Unique {
    /// The message with these options.
    #[must_use]
    pub fn apply(self, mut message: Message) -> Message {
        if let Some(window) = self.window {
            message = message.window(window);
        }
        if let Some(max_wait) = self.max_wait {
            message = message.max_wait(max_wait);
        }
        if self.reuse {
            message = message.reuse();
        }
        if self.revive {
            message = message.revive();
        }
        if let Some(cancelled_ms) = self.undo_ms {
            message = message.undo(cancelled_ms);
        }
        message
    }
}

//! The flags of a push that concern other pushes of the same id.

use std::time::Duration;

use clap::Args;
use dueq::Message;

use crate::time;

#[derive(Args, Clone, Copy, Default)]
pub(crate) struct UniqueFlags {
    /// Remember the id for this long, 1ms to 30d, whatever becomes of the message: until then
    /// another push of the id stores nothing
    #[arg(long, value_name = "TIME", value_parser = time::delay)]
    pub(crate) window: Option<Duration>,
    /// Store the message although an earlier --window remembers its id
    #[arg(long)]
    pub(crate) reuse: bool,
    /// Pushes that move the message postpone it no further than this after the first one; needs
    /// --on-conflict
    #[arg(long, value_name = "TIME", value_parser = time::delay)]
    pub(crate) max_wait: Option<Duration>,
    /// Replace a dead message too; needs --on-conflict replace or next
    #[arg(long)]
    pub(crate) revive: bool,
}

impl UniqueFlags {
    /// The message with these options.
    pub(crate) fn apply(self, mut message: Message) -> Message {
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
        message
    }
}

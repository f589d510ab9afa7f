//! The flags of a push that concern other pushes of the same id.

use std::time::Duration;

use clap::Args;
use dueq_input::Unique;

use crate::time;

#[derive(Args)]
pub(crate) struct UniqueFlags {
    /// Remember the id for this long, 1ms to 30d, whatever becomes of the message: until then
    /// another push of the id stores nothing
    #[arg(long, value_name = "TIME", value_parser = time::delay)]
    window: Option<Duration>,
    /// Store the message although an earlier --window remembers its id
    #[arg(long)]
    reuse: bool,
    /// Pushes that move the message postpone it no further than this after the first one; needs
    /// --on-conflict
    #[arg(long, value_name = "TIME", value_parser = time::delay)]
    max_wait: Option<Duration>,
    /// Replace a dead message too; needs --on-conflict replace or next
    #[arg(long)]
    revive: bool,
}

impl UniqueFlags {
    /// What the flags say.
    pub(crate) fn read(self) -> Unique {
        Unique {
            window: self.window,
            reuse: self.reuse,
            max_wait: self.max_wait,
            revive: self.revive,
            undo_ms: None,
        }
    }
}

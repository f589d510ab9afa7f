//! `dueq import`: imports the messages of another program's queue.

pub(crate) mod codec;
mod copy;
pub(crate) mod frame;
mod redisson;
mod store;

use clap::{Args, Subcommand};

use crate::Common;

#[derive(Args)]
#[command(after_help = "\
The import reads the other program's keys and pushes their elements with their due times. It changes
none of those keys, and it can be repeated: no element is imported twice.

Examples:
  dueq import redisson orders --dry-run
  dueq import redisson orders")]
pub(crate) struct Import {
    #[command(subcommand)]
    from: From,
}

#[derive(Subcommand)]
enum From {
    /// Copy the elements of a Redisson RDelayedQueue into a queue; Redisson's keys are only read
    Redisson(redisson::Redisson),
}

impl Import {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<()> {
        match self.from {
            From::Redisson(redisson) => redisson.run(common).await,
        }
    }
}

//! `dueq import`: takes over what waits in another program's queue.

pub(crate) mod codec;
pub(crate) mod frame;
mod redisson;
mod store;

use clap::{Args, Subcommand};

use crate::Common;

#[derive(Args)]
pub(crate) struct Import {
    #[command(subcommand)]
    from: From,
}

#[derive(Subcommand)]
enum From {
    /// Copy what a Redisson RDelayedQueue holds into a queue; Redisson's keys are only read
    Redisson(redisson::Redisson),
}

impl Import {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<()> {
        match self.from {
            From::Redisson(redisson) => redisson.run(common).await,
        }
    }
}

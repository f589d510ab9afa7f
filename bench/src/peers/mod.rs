//! The queue beside other delay queues.

use anyhow::Result;

/// The queue beside other delay queues.
#[derive(clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(_arguments: &Arguments) -> Result<()> {
    anyhow::bail!("not written yet")
}

//! The timing wheel beside other ways to keep timers.

use anyhow::Result;

/// The timing wheel beside other ways to keep timers.
#[derive(clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(_arguments: &Arguments) -> Result<()> {
    anyhow::bail!("not written yet")
}

//! `dueq-chaos role ...`: one process of a run.

use anyhow::Result;
use clap::Parser;
use dueq_chaos::roles;

#[derive(Debug, Parser)]
enum Command {
    Role(roles::Options),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let Command::Role(options) = Command::parse();
    roles::run(options).await
}

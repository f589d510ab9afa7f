//! dueq beside its peers, in one run.

mod drive;
mod peers;
mod wheel;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Measures dueq beside its peers, in one run on this machine.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Wheel(wheel::Arguments),
    Peers(peers::Arguments),
    #[command(hide = true)]
    Drive(drive::Arguments),
}

fn main() -> Result<()> {
    match Arguments::parse().what {
        What::Wheel(arguments) => wheel::run(&arguments),
        What::Peers(arguments) => peers::run(&arguments),
        What::Drive(arguments) => drive::run(&arguments),
    }
}

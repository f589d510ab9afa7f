//! dueq beside its peers, in one run.

mod curves;
mod drive;
mod instructions;
mod interrupt;
mod peers;
mod plot;
mod poison;
mod process;
mod soak;
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
    Scale(curves::scale::Arguments),
    Nodes(curves::nodes::Arguments),
    ManyQueues(curves::queues::Arguments),
    Legs(curves::legs::Arguments),
    Concurrency(curves::concurrency::Arguments),
    Storm(curves::storm::Arguments),
    Instructions(instructions::Arguments),
    Soak(soak::Arguments),
    Poison(poison::Arguments),
    Plot(plot::Arguments),
    #[command(hide = true)]
    ManyQueuesNode(curves::queues::node::Arguments),
    #[command(hide = true)]
    PoisonWorker(poison::WorkerArguments),
    #[command(hide = true)]
    Drive(drive::Arguments),
    #[command(hide = true)]
    SoakRole(soak::roles::Arguments),
}

fn main() -> Result<()> {
    match Arguments::parse().what {
        What::Wheel(arguments) => wheel::run(&arguments),
        What::Peers(arguments) => peers::run(&arguments),
        What::Scale(arguments) => curves::scale::run(&arguments),
        What::Nodes(arguments) => curves::nodes::run(&arguments),
        What::ManyQueues(arguments) => curves::queues::run(&arguments),
        What::ManyQueuesNode(arguments) => curves::queues::node::run(&arguments),
        What::Legs(arguments) => curves::legs::run(&arguments),
        What::Concurrency(arguments) => curves::concurrency::run(&arguments),
        What::Storm(arguments) => curves::storm::run(&arguments),
        What::Instructions(arguments) => instructions::run(&arguments),
        What::Soak(arguments) => soak::run(&arguments),
        What::Poison(arguments) => poison::run(&arguments),
        What::PoisonWorker(arguments) => poison::run_worker(&arguments),
        What::Plot(arguments) => plot::run(&arguments),
        What::Drive(arguments) => drive::run(&arguments),
        What::SoakRole(arguments) => soak::roles::run(&arguments),
    }
}

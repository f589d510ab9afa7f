//! `dueq-bench`: measures dueq and other delay queues in one run.

mod cluster;
mod curves;
mod drive;
mod instructions;
mod peers;
mod plot;
mod serve;
mod wheel;

use anyhow::{Result, bail};
use clap::{CommandFactory, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

/// Measures dueq beside its peers, in one run on this machine.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    /// Print the names of all measurements
    #[arg(long)]
    list: bool,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    Wheel(wheel::Arguments),
    Peers(peers::Arguments),
    Scale(curves::scale::Arguments),
    Nodes(curves::nodes::Arguments),
    Partitions(curves::partitions::Arguments),
    ClusterCost(cluster::cost::Arguments),
    ClusterLoad(cluster::load::Arguments),
    Failovers(cluster::failovers::Arguments),
    ManyQueues(curves::queues::Arguments),
    Legs(curves::legs::Arguments),
    Concurrency(curves::concurrency::Arguments),
    Storm(curves::storm::Arguments),
    Instructions(instructions::Arguments),
    Ticks(instructions::ticks::Arguments),
    Serve(serve::Arguments),
    Plot(plot::Arguments),
    #[command(hide = true)]
    ManyQueuesNode(curves::queues::node::Arguments),
    #[command(hide = true)]
    ServeFloor(serve::FloorArguments),
    #[command(hide = true)]
    Drive(drive::Arguments),
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let Some(what) = arguments.what.filter(|_| !arguments.list) else {
        let measurements = Arguments::command();
        for one in measurements.get_subcommands() {
            if !one.is_hide_set() {
                println!("{}", one.get_name());
            }
        }
        return Ok(());
    };
    match what {
        What::Wheel(arguments) => wheel::run(&arguments),
        What::Peers(arguments) => peers::run(&arguments),
        What::Scale(arguments) => curves::scale::run(&arguments),
        What::Nodes(arguments) => curves::nodes::run(&arguments),
        What::Partitions(arguments) => curves::partitions::run(&arguments),
        What::ClusterCost(arguments) => cluster::cost::run(&arguments),
        What::ClusterLoad(arguments) => cluster::load::run(&arguments),
        What::Failovers(arguments) => cluster::failovers::run(&arguments),
        What::ManyQueues(arguments) => curves::queues::run(&arguments),
        What::ManyQueuesNode(arguments) => curves::queues::node::run(&arguments),
        What::Legs(arguments) => curves::legs::run(&arguments),
        What::Concurrency(arguments) => curves::concurrency::run(&arguments),
        What::Storm(arguments) => curves::storm::run(&arguments),
        What::Instructions(arguments) => instructions::run(&arguments),
        What::Ticks(arguments) => instructions::ticks::run(&arguments),
        What::Serve(arguments) => serve::run(&arguments),
        What::ServeFloor(arguments) => serve::run_floor(&arguments),
        What::Plot(arguments) => plot::run(&arguments),
        What::Drive(arguments) => drive::run(&arguments),
    }
}

/// The result of `measuring`, unless SIGINT or SIGTERM comes first: then `measuring` is dropped,
/// which ends its servers and processes.
pub(crate) async fn unless_interrupted<T>(measuring: impl Future<Output = Result<T>>) -> Result<T> {
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    tokio::select! {
        result = measuring => result,
        _ = interrupt.recv() => bail!("interrupted"),
        _ = terminate.recv() => bail!("interrupted"),
    }
}

//! Many nodes and partitions on virtual time, with the real timers and attendance of nodes.
//!
//! The model leaves out leases, handlers that take time, and failures of Redis.

mod churn;
mod node;
mod report;
mod server;
#[cfg(test)]
mod tests;
mod world;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use world::Settings;

/// Simulates nodes that attend the partitions of a queue. The same seed gives the same result.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many nodes
    #[arg(long, default_value_t = 1_000)]
    nodes: usize,
    /// How many partitions; 1 is a queue without a map
    #[arg(long, default_value_t = 256)]
    partitions: u32,
    /// How many masters hold the partitions
    #[arg(long, default_value_t = 3)]
    masters: usize,
    /// How long messages become due, in virtual minutes
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// The mean time between two due instants of a partition
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration)]
    every: Duration,
    /// No node joins, dies or pauses, and no notice is lost
    #[arg(long)]
    calm: bool,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    ensure!(
        arguments.nodes > 0 && (1..=256).contains(&arguments.partitions) && arguments.masters > 0,
        "give at least 1 node, 1 to 256 partitions and at least 1 master"
    );
    let every = u64::try_from(arguments.every.as_micros())?;
    ensure!(every > 0, "--every 0s: give at least 1us");
    let start = Instant::now();
    let figures = world::run(Settings {
        nodes: arguments.nodes,
        partitions: arguments.partitions,
        masters: arguments.masters,
        length: arguments.minutes * 60_000_000,
        every,
        is_churning: !arguments.calm,
        seed: arguments.seed,
    });
    let mut result = figures.json();
    result["nodes"] = json!(arguments.nodes);
    result["partitions"] = json!(arguments.partitions);
    println!("{result:#}");
    eprintln!("{:.1} s of real time", start.elapsed().as_secs_f64());
    Ok(())
}

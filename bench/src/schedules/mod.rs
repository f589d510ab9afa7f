//! Long runs that prove recurring schedules: no tick is lost or doubled, and a preview is what fires.

mod alone;
mod applies;
mod cost;
mod idle;
mod law;
mod preview;
pub(crate) mod raw;
mod soak;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::interrupt::unless_interrupted;
use crate::uniqueness::outcome::{Outcome, report};

/// Proves recurring schedules under kills, stops and failovers, and without any node.
///
/// Exits with 1 if a judgement fails. No judgement depends on the speed of the machine.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only these scenarios
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAME,...",
        default_value = "soak,applies,alone,law,preview,idle,cost"
    )]
    only: Vec<Scenario>,
    /// How long `soak` takes, in minutes
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    minutes: f64,
    /// The time between two kills or stops of a node of `soak`, in seconds
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    fault_every: f64,
    /// The time between two failovers of `soak`, in seconds
    #[arg(long, value_name = "S", default_value_t = 30.0)]
    failover_every: f64,
    /// How many random patterns `preview` fires
    #[arg(long, value_name = "N", default_value_t = 100)]
    patterns: u64,
    /// How many fires of each pattern `preview` fires
    #[arg(long, value_name = "N", default_value_t = 200)]
    fires: usize,
    /// The seed of the patterns of `preview`, and of the jumps of `law`
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How many schedules `idle` has
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    schedules: usize,
    /// How long `idle` counts, in seconds
    #[arg(long, value_name = "S", default_value_t = 30.0)]
    idle_seconds: f64,
    /// All scenarios use each VERB.lua of this folder, for example a broken one
    #[arg(long, value_name = "DIR")]
    scripts: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
    Soak,
    Applies,
    Alone,
    Law,
    Preview,
    Idle,
    Cost,
}

impl Scenario {
    fn name(self) -> &'static str {
        match self {
            Self::Soak => "soak",
            Self::Applies => "applies",
            Self::Alone => "alone",
            Self::Law => "law",
            Self::Preview => "preview",
            Self::Idle => "idle",
            Self::Cost => "cost",
        }
    }
}

#[tokio::main]
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let times = [
        arguments.minutes,
        arguments.fault_every,
        arguments.failover_every,
        arguments.idle_seconds,
    ];
    ensure!(
        times.iter().all(|time| *time > 0.0),
        "--minutes, --fault-every, --failover-every and --idle-seconds must be above zero"
    );
    if let Some(folder) = &arguments.scripts {
        dueq::harness::replace_scripts(folder)?;
    }
    unless_interrupted(all(arguments)).await
}

async fn all(arguments: &Arguments) -> Result<()> {
    let mut outcomes = Vec::new();
    for &scenario in &arguments.only {
        let begin = Instant::now();
        let result = match scenario {
            Scenario::Soak => soak::run(arguments).await,
            Scenario::Applies => applies::run().await,
            Scenario::Alone => alone::run(arguments),
            Scenario::Law => law::run(arguments).await,
            Scenario::Preview => preview::run(arguments).await,
            Scenario::Idle => idle::run(arguments).await,
            Scenario::Cost => cost::run(arguments),
        };
        if result.is_err() {
            report(&outcomes, arguments.json); // of the scenarios before
        }
        let mut outcome: Outcome = result.with_context(|| scenario.name())?;
        outcome.figure("seconds", begin.elapsed().as_secs());
        outcomes.push((scenario.name(), outcome));
    }
    report(&outcomes, arguments.json);
    let failed: Vec<_> = outcomes
        .iter()
        .filter_map(|(name, outcome)| Some(format!("{name}: {}", outcome.violations.summary()?)))
        .collect();
    ensure!(failed.is_empty(), "not met: {}", failed.join("; "));
    Ok(())
}

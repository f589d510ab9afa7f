//! Recurring schedules: proves that no tick is lost or doubled.

mod idle;
mod law;

use anyhow::{Result, ensure};
use clap::ValueEnum;

use super::chaos::{Preset, preset};
use crate::faults::Kind;
use crate::kit::scenarios::{self, Ending};

/// Proves recurring schedules under kills, stops and failovers, and over clock changes.
///
/// Exits with 1 if a judgement fails. No judgement depends on the speed of the machine.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only these scenarios
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAME,...",
        default_value = "faults,law,idle"
    )]
    only: Vec<Scenario>,
    #[command(flatten)]
    preset: Preset,
    /// How many schedules `idle` has
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    schedules: usize,
    /// How long `idle` counts, in seconds
    #[arg(long, value_name = "S", default_value_t = 30.0)]
    idle_seconds: f64,
    #[command(flatten)]
    ending: Ending,
}

#[derive(Clone, Copy, ValueEnum)]
enum Scenario {
    Faults,
    Law,
    Idle,
}

/// Faults that lose answers of claims, end leases, stop the server or step its clock.
const FAULTS: [Kind; 8] = [
    Kind::WorkerKill,
    Kind::WorkerStop,
    Kind::OperatorKill,
    Kind::NetCut,
    Kind::ServerKill,
    Kind::Failover,
    Kind::ClockForward,
    Kind::ClockBack,
];

pub async fn run(arguments: &Arguments) -> Result<()> {
    ensure!(
        arguments.idle_seconds > 0.0,
        "--idle-seconds must be above zero"
    );
    if let Some(folder) = &arguments.preset.scripts {
        dueq::harness::replace_scripts(folder)?;
    }
    scenarios::run(
        &arguments.only,
        arguments.ending,
        async |scenario, report| match scenario {
            Scenario::Faults => preset(&arguments.preset, &FAULTS, "schedules", report).await,
            Scenario::Law => law::run(arguments, report).await,
            Scenario::Idle => idle::run(arguments, report).await,
        },
    )
    .await
}

//! The limits of a queue: runs under faults, judged by the checker of chaos; and expiry to the
//! millisecond.

mod expiry;

use anyhow::{Result, ensure};
use clap::ValueEnum;

use super::chaos::{Preset, preset};
use crate::faults::Kind;
use crate::kit::scenarios::{self, Ending};

/// Proves the limits of a queue: rate and leased messages under faults, and expiry.
///
/// Exits with 1 if a rule is broken. Goals of times depend on the machine: they are reported, and
/// fail the run only with `--strict`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only these scenarios
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAME,...",
        default_value = "faults,expiry"
    )]
    only: Vec<Scenario>,
    #[command(flatten)]
    preset: Preset,
    /// Expired messages of `expiry`
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    messages: u64,
    #[command(flatten)]
    ending: Ending,
}

#[derive(Clone, Copy, ValueEnum)]
enum Scenario {
    Faults,
    Expiry,
}

/// Faults that lose answers of claims, end leases or stop the server, in queues with a limit.
const FAULTS: [Kind; 6] = [
    Kind::WorkerKill,
    Kind::WorkerStop,
    Kind::OperatorKill,
    Kind::NetCut,
    Kind::ServerKill,
    Kind::Failover,
];

pub async fn run(arguments: &Arguments) -> Result<()> {
    ensure!(arguments.messages > 0, "--messages must be above zero");
    scenarios::run(
        &arguments.only,
        arguments.ending,
        async |scenario, report| match scenario {
            Scenario::Faults => preset(&arguments.preset, &FAULTS, "limits", report).await,
            Scenario::Expiry => expiry::run(arguments, report).await,
        },
    )
    .await
}

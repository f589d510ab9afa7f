//! Measures what `dueq serve` costs: Redis, CPU and memory, compared with the library and a floor.

mod bounds;
mod calls;
mod consume;
mod document;
mod fill;
mod floor;
mod http;
mod judge;
mod load;
mod memory;
mod ndjson;
mod poll;
mod process;
mod push;
mod viewers;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

pub(crate) use floor::{Arguments as FloorArguments, run as run_floor};

use crate::unless_interrupted;
use dueq_testkit::report::Report;

/// Measures what `dueq serve` costs.
///
/// Exits with 1 if a rule is broken. Goals for throughput and latencies depend on the machine: they are reported, and
/// fail the run only with `--strict`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only these scenarios
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAME,...",
        default_value = "bounds,viewers,memory,push,ndjson,consume,poll"
    )]
    only: Vec<Scenario>,
    /// Waiting messages of `bounds`
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    waiting: u64,
    /// Small queues of `bounds`
    #[arg(long, value_name = "N", default_value_t = 999)]
    queues: u64,
    /// The program
    #[arg(long, value_name = "FILE", default_value = "target/release/dueq")]
    dueq: PathBuf,
    /// Missed goals fail the run, too
    #[arg(long)]
    strict: bool,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
    Bounds,
    Viewers,
    Memory,
    Push,
    Ndjson,
    Consume,
    Poll,
}

impl Scenario {
    fn name(self) -> &'static str {
        match self {
            Self::Bounds => "bounds",
            Self::Viewers => "viewers",
            Self::Memory => "memory",
            Self::Push => "push",
            Self::Ndjson => "ndjson",
            Self::Consume => "consume",
            Self::Poll => "poll",
        }
    }
}

#[tokio::main]
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    ensure!(arguments.waiting > 0, "--waiting must be above zero");
    unless_interrupted(all(arguments)).await
}

async fn all(arguments: &Arguments) -> Result<()> {
    let mut report = Report::default();
    for scenario in &arguments.only {
        let result = match scenario {
            Scenario::Bounds => bounds::run(arguments, &mut report).await,
            Scenario::Viewers => viewers::run(arguments, &mut report).await,
            Scenario::Memory => memory::run(arguments, &mut report).await,
            Scenario::Push => push::run(arguments, &mut report).await,
            Scenario::Ndjson => ndjson::run(arguments, &mut report).await,
            Scenario::Consume => consume::run(arguments, &mut report).await,
            Scenario::Poll => poll::run(arguments, &mut report).await,
        };
        if result.is_err() {
            println!("{}", report.table()); // the table of the scenarios before the failed one
        }
        result.with_context(|| scenario.name())?;
    }
    report.print(arguments.json, arguments.strict)
}

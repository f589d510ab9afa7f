//! The drivers inside this program, which starts itself once for each of them.

mod beanstalkd;
mod dueq;
pub(crate) mod floor;

use anyhow::Result;
use clap::ValueEnum;

/// Runs one of the systems: reads requests as JSON lines from standard input.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    system: System,
    /// The URL of its server.
    server: String,
}

#[derive(Clone, Copy, ValueEnum)]
enum System {
    Dueq,
    Floor,
    Beanstalkd,
}

#[tokio::main]
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    match arguments.system {
        System::Dueq => dueq_bench_driver::run::<dueq::Dueq>(&arguments.server).await,
        System::Floor => dueq_bench_driver::run::<floor::Floor>(&arguments.server).await,
        System::Beanstalkd => {
            dueq_bench_driver::run::<beanstalkd::Beanstalkd>(&arguments.server).await
        }
    }
}

//! Windows, debounces, next messages and follow-ups, judged by the server's append-only file.

mod aof;
mod chains;
mod debounce;
mod next;
mod window;
mod worker;

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use dueq_testkit::Server;

use crate::kit::scenarios::{self, Ending, wall_us};

pub use worker::{Arguments as WorkerArguments, Role, run as run_worker};

/// The name of the queue on each private server.
const QUEUE: &str = "uniqueness";
/// The time between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(5);

/// Proves uniqueness windows, debounces, next messages and follow-ups with lost replies and killed
/// workers.
///
/// Each scenario has a private server, whose append-only file is the record that it is judged by.
/// Exits with 1 if a judgement fails.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only these scenarios
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAME,...",
        default_value = "window,debounce,next,chains"
    )]
    only: Vec<Scenario>,
    /// Pushes of `window`, of 1,000 ids
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pushes: u64,
    /// One push in N of `window` loses a reply, and with it those of the pushes in the same calls
    #[arg(long, value_name = "N", default_value_t = 500)]
    lose_one_in: u64,
    /// How often each of the 100 ids of `debounce` fires
    #[arg(long, value_name = "N", default_value_t = 20)]
    rounds: u64,
    /// Messages of `next`
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    runs: u64,
    /// One first run in N of `next` kills its worker, and another one fails
    #[arg(long, value_name = "N", default_value_t = 50)]
    crash_one_in: u64,
    /// Chains of `chains`, of five steps
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    chains: u64,
    /// The time between two faults of `chains`: a worker is killed, or frozen for 3.5 s
    #[arg(long, value_name = "MS", default_value_t = 1_000)]
    fault_every_ms: u64,
    /// Worker processes of `next` and `chains`
    #[arg(long, value_name = "N", default_value_t = 4)]
    workers: usize,
    #[command(flatten)]
    ending: Ending,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Scenario {
    Window,
    Debounce,
    Next,
    Chains,
}

pub async fn run(arguments: &Arguments) -> Result<()> {
    ensure!(
        arguments.workers > 0 && arguments.lose_one_in > 0 && arguments.crash_one_in > 1,
        "--workers and --lose-one-in must be at least 1, --crash-one-in at least 2"
    );
    scenarios::run(
        &arguments.only,
        arguments.ending,
        async |scenario, report| match scenario {
            Scenario::Window => window::run(arguments, report).await,
            Scenario::Debounce => debounce::run(arguments, report).await,
            Scenario::Next => next::run(arguments, report).await,
            Scenario::Chains => chains::run(arguments, report).await,
        },
    )
    .await
}

/// Starts a server that writes every change to its append-only file, and never rewrites the file.
fn recording_server() -> Result<Server> {
    let no_rewrites = ["--auto-aof-rewrite-percentage", "0"];
    let file = ["--appendonly", "yes", "--appendfsync", "no"];
    Server::start(&[file.as_slice(), no_rewrites.as_slice()].concat())
}

/// The wall clock in Unix ms, rounded down.
fn now_ms() -> u64 {
    wall_us() / 1_000
}

/// Awaits `work`; until then prints a line of progress every 5 s.
async fn with_progress<T>(work: impl Future<Output = T>, line: impl Fn() -> String) -> T {
    tokio::pin!(work);
    loop {
        tokio::select! {
            result = &mut work => return result,
            () = tokio::time::sleep(PROGRESS) => eprintln!("{}", line()),
        }
    }
}

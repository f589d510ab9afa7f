//! Long runs that prove windows, debounces, next messages and follow-ups under faults.

mod aof;
mod chains;
mod crew;
mod debounce;
mod next;
pub(crate) mod outcome;
mod window;
mod worker;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use dueq::{Queue, Stats};
use dueq_testkit::Server;

use crate::interrupt::unless_interrupted;
use outcome::{Outcome, report};

pub(crate) use worker::{Arguments as WorkerArguments, run as run_worker};

/// The name of the queue on each private server.
const QUEUE: &str = "uniqueness";
/// The time between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(5);
/// The time between two looks at the queue.
const LOOK: Duration = Duration::from_millis(200);
/// Messages of one `push_many`.
const CHUNK: u64 = 1_000;

/// Proves uniqueness windows, debounces, next messages and follow-ups in long runs with lost
/// replies and killed workers. Each scenario has a private server, whose append-only file is the
/// record that it is judged by. Exits with 1 if a judgement fails.
#[derive(clap::Args)]
pub(crate) struct Arguments {
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
    /// The time between two kills or stops of a worker of `chains`
    #[arg(long, value_name = "MS", default_value_t = 1_000)]
    fault_every_ms: u64,
    /// Worker processes of `next` and `chains`
    #[arg(long, value_name = "N", default_value_t = 4)]
    workers: usize,
    /// How long each scenario may take
    #[arg(long, value_name = "S", default_value_t = 3_600)]
    seconds: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
    Window,
    Debounce,
    Next,
    Chains,
}

impl Scenario {
    fn name(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Debounce => "debounce",
            Self::Next => "next",
            Self::Chains => "chains",
        }
    }
}

#[tokio::main]
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    unless_interrupted(all(arguments)).await
}

async fn all(arguments: &Arguments) -> Result<()> {
    ensure!(
        arguments.workers > 0 && arguments.lose_one_in > 0 && arguments.crash_one_in > 1,
        "--workers and --lose-one-in must be at least 1, --crash-one-in at least 2"
    );
    let mut outcomes = Vec::new();
    for &scenario in &arguments.only {
        let start = std::time::Instant::now();
        let running = scenario_run(arguments, scenario);
        let limit = Duration::from_secs(arguments.seconds);
        let mut outcome = tokio::time::timeout(limit, running)
            .await
            .with_context(|| {
                format!(
                    "{}: not done after {} s: the queue still has messages, or --seconds is too short",
                    scenario.name(),
                    arguments.seconds
                )
            })?
            .with_context(|| scenario.name())?;
        outcome.figure("seconds", start.elapsed().as_secs());
        outcomes.push((scenario.name(), outcome));
    }
    report(&outcomes, arguments.json);
    let failed: Vec<String> = outcomes
        .iter()
        .filter_map(|(name, outcome)| Some(format!("{name}: {}", outcome.violations.summary()?)))
        .collect();
    if !failed.is_empty() {
        bail!("not met: {}", failed.join("; "));
    }
    Ok(())
}

async fn scenario_run(arguments: &Arguments, scenario: Scenario) -> Result<Outcome> {
    match scenario {
        Scenario::Window => window::run(arguments).await,
        Scenario::Debounce => debounce::run(arguments).await,
        Scenario::Next => next::run(arguments).await,
        Scenario::Chains => chains::run(arguments).await,
    }
}

/// A server that writes every change to its append-only file, and never rewrites that.
fn recording_server() -> Result<Server> {
    let no_rewrites = ["--auto-aof-rewrite-percentage", "0"];
    let file = ["--appendonly", "yes", "--appendfsync", "no"];
    Server::start(&[file.as_slice(), no_rewrites.as_slice()].concat())
}

/// This machine's wall clock, which the private server reads too, in Unix ms, rounded down.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// The result of `work`; prints a line of progress every 5 s until then.
async fn with_progress<T>(work: impl Future<Output = T>, line: impl Fn() -> String) -> T {
    tokio::pin!(work);
    loop {
        tokio::select! {
            result = &mut work => return result,
            () = tokio::time::sleep(PROGRESS) => eprintln!("{}", line()),
        }
    }
}

/// Waits until the queue holds nothing but dead messages.
async fn until_empty(queue: &Queue) -> Result<Stats> {
    loop {
        let stats = queue.stats().await?;
        if stats.scheduled + stats.ready + stats.leased == 0 {
            return Ok(stats);
        }
        tokio::time::sleep(LOOK).await;
    }
}

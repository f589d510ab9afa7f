//! Long runs that prove the limits of a queue: its rate, its number of leased messages, breaks and
//! expiry.

mod expiry;
pub(crate) mod history;
mod leased;
mod meter;
pub(crate) mod node;
mod rate;
mod receiver;
pub(crate) mod record;
pub(crate) mod report;
mod throttle;
pub(crate) mod watch;

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::ValueEnum;
use dueq::{Message, Queue};

pub(crate) use node::{Arguments as NodeArguments, run as run_node};

use crate::interrupt::unless_interrupted;
use report::Report;

pub(crate) const QUEUE: &str = "limits";
/// How many messages one pipeline pushes.
const CHUNK: u64 = 4_000;

/// Proves the limits of a queue while its nodes are killed: that they hold, and what they cost.
///
/// Exits with 1 if a rule is broken. Goals for rates and latencies depend on the machine: they are reported, and fail
/// the run only with `--strict`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Which scenarios
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "rate,leased,throttle,expiry"
    )]
    only: Vec<Scenario>,
    /// How long the scenario `rate` takes, in minutes [default: 10]; and `leased` [default: 2]
    #[arg(long, value_name = "N", value_parser = minutes)]
    minutes: Option<f64>,
    /// Expired messages of the scenario `expiry`
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    messages: u64,
    /// The mean time between two kills of a node, in seconds
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    kill_every: f64,
    /// The program of the scenario `throttle`
    #[arg(long, value_name = "FILE", default_value = "target/release/dueq")]
    dueq: PathBuf,
    /// The nodes of `rate` and `leased` use each VERB.lua of this folder, for example a broken one
    #[arg(long, value_name = "DIR")]
    scripts: Option<PathBuf>,
    /// Missed goals fail the run, too
    #[arg(long)]
    strict: bool,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
    Rate,
    Leased,
    Throttle,
    Expiry,
}

/// At least a quarter of a minute: two failovers need that long.
fn minutes(text: &str) -> Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_| "this is no number".to_owned())?;
    match (0.25..=1_440.0).contains(&minutes) {
        true => Ok(minutes),
        false => Err("give 0.25 to 1440 minutes".to_owned()),
    }
}

#[tokio::main]
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    ensure!(
        arguments.kill_every > 0.0 && arguments.messages > 0,
        "--kill-every and --messages must be above zero"
    );
    unless_interrupted(all(arguments)).await
}

async fn all(arguments: &Arguments) -> Result<()> {
    let mut report = Report::default();
    for scenario in &arguments.only {
        let result = match scenario {
            Scenario::Rate => rate::run(arguments, &mut report).await,
            Scenario::Leased => leased::run(arguments, &mut report).await,
            Scenario::Throttle => throttle::run(arguments, &mut report).await,
            Scenario::Expiry => expiry::run(arguments, &mut report).await,
        };
        if let Err(error) = result {
            println!("{}", report.table()); // of the scenarios before
            return Err(error);
        }
    }
    match arguments.json {
        true => println!("{:#}", report.json()),
        false => println!("{}", report.table()),
    }
    let failures = report.failures(arguments.strict);
    ensure!(failures.is_empty(), "not met: {}", failures.join("; "));
    Ok(())
}

/// Pushes these messages, several thousand at a time.
async fn push(queue: &Queue, count: u64, message: impl Fn(u64) -> Message) -> Result<()> {
    let mut first = 0;
    while first < count {
        let end = count.min(first + CHUNK);
        for pushed in queue.push_many((first..end).map(&message)).await {
            pushed?;
        }
        if end / 200_000 > first / 200_000 {
            eprintln!("{end} of {count} messages are pushed");
        }
        first = end;
    }
    Ok(())
}

/// A folder for the logs of nodes, removed on drop.
pub(crate) struct Folder {
    path: PathBuf,
    is_kept: bool,
}

impl Folder {
    pub(crate) fn create(name: &str) -> Result<Self> {
        let folder = format!("dueq-limits-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&path)?;
        let is_kept = false;
        Ok(Self { path, is_kept })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the logs: they prove that a rule was broken.
    pub(crate) fn keep(&mut self) {
        eprintln!("the logs of the nodes stay in {}", self.path.display());
        self.is_kept = true;
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

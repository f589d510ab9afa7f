//! Runs the scenarios of a proof one after the other, and reports.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use dueq::{Message, Queue, QueueStats};
use dueq_testkit::report::Report;

/// The number of messages that one pipeline pushes.
const CHUNK: u64 = 4_000;
/// The time between two looks at a queue.
pub(crate) const LOOK: Duration = Duration::from_millis(200);

/// How a proof ends.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Ending {
    /// How long each scenario may take, in seconds
    #[arg(long, value_name = "S", default_value_t = 3_600)]
    pub(crate) seconds: u64,
    /// Missed goals of figures that depend on the machine fail the run, too
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print JSON instead of the table
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs these scenarios, prints their figures, and fails if a rule is broken.
pub(crate) async fn run<S: ValueEnum>(
    only: &[S],
    ending: Ending,
    run: impl AsyncFn(&S, &mut Report) -> Result<()>,
) -> Result<()> {
    let mut report = Report::default();
    for scenario in only {
        let value = scenario.to_possible_value().context("a scenario")?;
        let (name, begin) = (value.get_name(), Instant::now());
        report.scenario(name);
        let limit = Duration::from_secs(ending.seconds);
        let ran = tokio::time::timeout(limit, run(scenario, &mut report)).await;
        let ran = ran.with_context(|| {
            format!("not done after {limit:?}: the queue hangs, or --seconds is too short")
        });
        if let Err(error) = ran.and_then(|ran| ran) {
            println!("{}", report.table()); // the table of the scenarios before the failed one
            return Err(error.context(name.to_owned()));
        }
        report.figure("seconds", begin.elapsed().as_secs());
    }
    report.print(ending.json, ending.strict)
}

/// Pushes these new messages, several thousand at a time.
pub(crate) async fn push(
    queue: &Queue,
    count: u64,
    message: impl Fn(u64) -> Message,
) -> Result<()> {
    let mut first = 0;
    while first < count {
        let end = count.min(first + CHUNK);
        for pushed in queue.push_many((first..end).map(&message)).await {
            ensure!(pushed?.is_created(), "a message was there before");
        }
        if end / 200_000 > first / 200_000 {
            eprintln!("{end} of {count} messages are pushed");
        }
        first = end;
    }
    Ok(())
}

/// The number of messages that are not dead.
pub(crate) fn alive(stats: &QueueStats) -> u64 {
    stats.scheduled + stats.ready + stats.leased
}

/// Waits until the queue holds nothing but dead messages.
pub(crate) async fn until_empty(queue: &Queue) -> Result<QueueStats> {
    loop {
        let stats = queue.stats().await?;
        if alive(&stats) == 0 {
            return Ok(stats);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// This machine's wall clock, which private servers read too, in Unix microseconds.
pub(crate) fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0))
}

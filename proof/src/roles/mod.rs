//! The processes of a run: producers, workers, cancellers and operators, each on the public API of the library.

mod by_hand;
mod canceller;
mod consumer;
pub(crate) mod drill;
mod mover;
mod operator;
mod producer;
mod program;
mod scheduler;
mod serving;
mod settling;
mod worker;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{Client, Queue};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::field::{Field, Visit};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context as LayerContext, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::broken::Program;
use crate::history::{Event, Role};
use crate::queues::{planned_queues, served_queues};
use crate::recorder::Diary;
use crate::ticks::LIST;
use crate::workload::hash;

/// The arguments of one process.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// The role
    #[arg(value_enum)]
    pub role: Kind,
    /// Prefix of the ids that it pushes: a new one for each process
    #[arg(long)]
    pub name: String,
    #[arg(long)]
    pub seed: u64,
    #[arg(long)]
    pub url: String,
    /// How many queues it uses
    #[arg(long, default_value_t = 1)]
    pub queues: usize,
    /// The start of the run by the clock that all processes share: bursts count from it
    #[arg(long, default_value_t = 0)]
    pub epoch_us: u64,
    /// Its history, a file that must not exist
    #[arg(long)]
    pub history: PathBuf,
    /// A folder of VERB.lua files to use instead of the shipped ones
    #[arg(long)]
    pub scripts: Option<PathBuf>,
    /// A folder with the scripts of an older release, for this process alone
    #[arg(long, conflicts_with = "scripts")]
    pub older: Option<PathBuf>,
    /// Messages per second of a producer (2000), operations per second of a canceller (200)
    #[arg(long)]
    pub rate: Option<u32>,
    /// A producer ends after so many messages; 0 is never
    #[arg(long, default_value_t = 0)]
    pub messages: u64,
    /// One message in so many kills the worker that starts it; 0 is none
    #[arg(long, default_value_t = 0)]
    pub poison_every: u64,
    /// A producer pushes each of its ids once
    #[arg(long)]
    pub once: bool,
    /// While this file exists, a producer waits until a replica has its pushes
    #[arg(long)]
    pub replicated_while: Option<PathBuf>,
    /// A producer pushes only this many messages, due within the second that begins at --due-ms, and ends
    #[arg(long, requires = "due_ms")]
    pub storm: Option<u64>,
    /// When a storm begins, in Unix ms
    #[arg(long)]
    pub due_ms: Option<u64>,
    /// The lease of a worker
    #[arg(long, default_value_t = 2_000)]
    pub lease_ms: u64,
    /// How long a worker lets a handler run
    #[arg(long, default_value_t = 5_000)]
    pub time_limit_ms: u64,
    /// How many handlers a worker runs at once
    #[arg(long, default_value_t = 96)]
    pub concurrency: usize,
    /// Messages per second that a worker claims by hand, beside its handlers, under short leases
    /// that it lets run out
    #[arg(long, default_value_t = 20)]
    pub by_hand: u32,
    /// The most partitions that a mover gives the queue that may have several
    #[arg(long, default_value_t = 12)]
    pub partitions: usize,
    /// A canceller only purges its queue, repeatedly
    #[arg(long)]
    pub purge: bool,
    /// The URL under which consumers reach a server of HTTP
    #[arg(long)]
    pub public_url: Option<String>,
    /// The key with which all servers of HTTP sign
    #[arg(long)]
    pub signing_key: Option<PathBuf>,
    /// The names of the servers that a consumer uses, each with its port: h1=8377
    #[arg(long, value_delimiter = ',')]
    pub servers: Vec<consumer::Server>,
    /// The words with which a program in another language starts, before `work` or `push`
    #[arg(long)]
    pub command: Option<String>,
    /// The program is a producer
    #[arg(long)]
    pub pushes: bool,
    /// It is broken on purpose
    #[arg(long, value_enum)]
    pub broken: Option<crate::broken::Program>,
}

impl Options {
    fn is_cluster(&self) -> bool {
        self.url.contains("cluster://")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    Producer,
    Worker,
    Canceller,
    Operator,
    /// Applies, triggers, backfills, pauses and removes schedules
    Scheduler,
    /// Changes the number of partitions
    Mover,
    /// Serves the queues over HTTP
    Serve,
    /// Claims and settles over HTTP
    Consumer,
    /// A worker or a producer in another language
    Program,
    /// Calls with old maps of the partitions, and ends after the last call
    Drill,
}

/// Runs one process until SIGTERM.
pub async fn run(options: Options) -> Result<()> {
    let role = match options.role {
        Kind::Producer => Role::Producer,
        Kind::Program if options.pushes => Role::Producer,
        Kind::Worker | Kind::Program => Role::Worker,
        Kind::Canceller => Role::Canceller,
        Kind::Mover => Role::Mover,
        Kind::Serve => Role::Serve,
        Kind::Consumer => Role::Consumer,
        Kind::Operator | Kind::Scheduler | Kind::Drill => Role::Operator,
    };
    if let Some(folder) = options.scripts.as_ref().or(options.older.as_ref()) {
        dueq::harness::replace_scripts(folder)
            .with_context(|| format!("the scripts in {}", folder.display()))?;
    }
    dueq::harness::shorten_lists(LIST);
    if matches!(options.broken, Some(Program::LostClaimsForgotten)) {
        dueq::harness::forget_lost_claims();
    }
    let diary = Diary::begin(&options.history, role, &options.name, options.is_cluster())?;
    if options.older.is_some() {
        diary.write(&Event::OlderScripts);
    }
    log(diary.clone());
    // Seeds this program's random numbers and the library's jitter.
    fastrand::seed(options.seed ^ hash(options.name.as_bytes()));
    // Catch the signal before the process is ready: uncaught, it would kill the process.
    let changes = signal(SignalKind::user_defined2())?;
    let mut stop = stop_on_sigterm()?;
    if options.role == Kind::Consumer {
        writeln!(std::io::stdout(), "ready")?;
        consumer::run(&options, &diary, stop).await?;
        diary.write(&Event::End);
        return Ok(());
    }
    if options.role == Kind::Program {
        // No `Event::End`: the program is killed, and what it held comes back when its leases end.
        return program::run(&options, &diary, stop).await;
    }
    let Some((client, queues)) = connect(&options, &mut stop).await? else {
        return Ok(());
    };
    if options.role == Kind::Serve {
        serving::serve(&options, client, stop).await?;
        diary.write(&Event::End);
        return Ok(());
    }
    writeln!(std::io::stdout(), "ready")?;
    match options.role {
        Kind::Producer => producer::run(&options, queues, &diary, stop).await?,
        Kind::Worker => worker::run(&options, &client, queues, &diary, stop, changes).await?,
        Kind::Canceller => canceller::run(&options, queues, &diary, stop).await?,
        Kind::Operator => operator::run(&options, queues, &diary, stop).await?,
        Kind::Scheduler => scheduler::run(&options, queues, stop).await?,
        Kind::Mover => mover::run(&options, queues, &diary, stop, changes).await?,
        Kind::Drill => drill::run(&options, &client, &diary).await?,
        Kind::Serve | Kind::Consumer | Kind::Program => {}
    }
    diary.write(&Event::End);
    Ok(())
}

/// Becomes true when the process must end.
type Stop = watch::Receiver<bool>;

/// Completes when the process must end; at once if it was asked to before.
async fn stopped(stop: &mut Stop) {
    // Cannot fail: the sender is not dropped before it has sent.
    let _ = stop.wait_for(|stop| *stop).await;
}

fn stop_on_sigterm() -> Result<Stop> {
    let mut signals = signal(SignalKind::terminate())?;
    let (sender, receiver) = watch::channel(false);
    tokio::spawn(async move {
        signals.recv().await;
        sender.send_replace(true);
        sender.closed().await;
    });
    Ok(receiver)
}

/// Waits for the server, which may be unreachable when the process starts. `None` if the process
/// must end first.
async fn connect(options: &Options, stop: &mut Stop) -> Result<Option<(Client, Vec<Queue>)>> {
    loop {
        let connecting = async {
            let client = Client::connect(&options.url).await?;
            let planned = match options.role {
                Kind::Worker | Kind::Scheduler => served_queues(options.queues),
                _ => planned_queues(options.queues),
            };
            let queues = planned
                .iter()
                .map(|planned| client.queue(planned.name))
                .collect::<Result<Vec<_>, _>>()?;
            for queue in &queues {
                // The first reply contains the server's time, from which due times are computed.
                queue.stats().await?;
            }
            Ok::<_, dueq::Error>((client, queues))
        };
        tokio::select! {
            () = stopped(stop) => return Ok(None),
            connected = connecting => match connected {
                Ok(connected) => return Ok(Some(connected)),
                Err(error) if may_pass(&error) => tracing::warn!(%error, "not connected yet"),
                Err(error) => return Err(error.into()),
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Whether the error may be temporary: the server is unreachable, or a fault has taken our rights
/// away.
fn may_pass(error: &dueq::Error) -> bool {
    error.is_retryable() || error.kind() == dueq::ErrorKind::Denied
}

/// Logs to standard error, and records the library's notice that the store was emptied.
fn log(diary: Diary) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let to_stderr = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_filter(filter);
    let emptied = Emptied(diary).with_filter(LevelFilter::WARN);
    tracing_subscriber::registry()
        .with(to_stderr)
        .with(emptied)
        .init();
}

struct Emptied(Diary);

impl<S: tracing::Subscriber> Layer<S> for Emptied {
    fn on_event(&self, event: &tracing::Event<'_>, _: LayerContext<'_, S>) {
        if event.metadata().target() == "dueq" {
            let mut message = Message(String::new());
            event.record(&mut message);
            if message.0.starts_with("the store was emptied") {
                self.0.write(&Event::NoticedEmpty);
            }
        }
    }
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

/// Limits the rate of actions. Actions that could not be made in time accumulate for at most one
/// second.
struct Pace {
    per_second: u64,
    since: tokio::time::Instant,
    done: u64,
}

impl Pace {
    fn new(per_second: u32) -> Self {
        Self {
            per_second: u64::from(per_second),
            since: tokio::time::Instant::now(),
            done: 0,
        }
    }

    /// The number of actions due now; waits until there are at least `least`.
    async fn owed(&mut self, least: u64) -> u64 {
        if self.per_second == 0 {
            return std::future::pending().await;
        }
        loop {
            let elapsed_us = u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX);
            let until_now = elapsed_us.saturating_mul(self.per_second) / 1_000_000;
            let owed = until_now.saturating_sub(self.done);
            if owed > self.per_second {
                self.done = until_now - self.per_second;
            }
            if owed >= least.min(self.per_second) {
                return owed.min(self.per_second);
            }
            let pause_us = (1_000_000 * least / self.per_second).clamp(5_000, 1_000_000);
            tokio::time::sleep(Duration::from_micros(pause_us)).await;
        }
    }

    fn did(&mut self, number: u64) {
        self.done += number;
    }
}

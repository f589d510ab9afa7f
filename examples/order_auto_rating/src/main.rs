//! An order is rated five stars 48 hours after its delivery, unless its buyer has rated it by then.
//!
//! Replays two years of a marketplace, 5,170 real orders, a million times faster: 48 hours become
//! 173 ms, and the whole run takes about a minute. At the end it prints an audit, and fails if the
//! figures do not balance.
//!
//! `make demo`, or with your own Redis:
//! `REDIS_URL=redis://127.0.0.1/ cargo run --release --example order_auto_rating -- --workers 3`

mod audit;
mod books;
mod input;
mod progress;
mod replay;
mod report;
mod schedule;
mod staff;
mod worker;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::{Parser, Subcommand};
use dueq::{Client, Queue, QueueLimits};
#[cfg(unix)]
use tokio::signal::unix::{SignalKind, signal};

use crate::input::Order;
use crate::progress::Progress;
use crate::replay::{Shop, Tally};
use crate::report::thousands;
use crate::schedule::Schedule;
use crate::staff::Staff;

/// Rates orders five stars 48 hours after their delivery, unless their buyers do it first: two years in a minute.
///
/// REDIS_URL names the server; without it, redis://127.0.0.1/.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Args {
    /// The orders: CSV with order_id, delivered_at, reviewed_at, review_score
    #[arg(long, value_name = "FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/orders.csv"))]
    input: PathBuf,
    /// Number of worker processes that rate the orders
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// Path of the SQLite database; without it, a temporary one is removed at the end
    #[arg(long, value_name = "FILE")]
    database: Option<PathBuf>,
    /// How many times faster than real time
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    speed: u64,
    /// Print only one JSON object on standard output
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Subcommand)]
enum Role {
    /// Run as one worker process; the program starts these
    #[command(hide = true)]
    Work {
        #[arg(long)]
        queue: String,
        #[arg(long)]
        database: PathBuf,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let result = match &args.role {
        Some(Role::Work { queue, database }) => worker::work(queue, database)
            .await
            .map(|()| ExitCode::SUCCESS),
        None => match input::read(&args.input) {
            Ok(orders) => demo(&args, &orders).await,
            Err(error) => {
                eprintln!("order_auto_rating: {error:#}");
                return ExitCode::from(2);
            }
        },
    };
    result.unwrap_or_else(|error| {
        eprintln!("order_auto_rating: {error:#}");
        ExitCode::FAILURE
    })
}

pub(crate) async fn connect() -> Result<Client> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    Ok(Client::connect(&url).await?)
}

/// Catches Ctrl-C and SIGTERM from the call on; the future ends with the first of them.
fn interruption() -> std::io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    let mut interrupt = signal(SignalKind::interrupt())?;
    #[cfg(not(unix))]
    let mut interrupt = tokio::signal::windows::ctrl_c()?;
    let terminated = termination()?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            () = terminated => {}
        }
    })
}

/// Catches SIGTERM from the call on; the future ends with it.
pub(crate) fn termination() -> std::io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        #[cfg(unix)]
        terminate.recv().await;
        #[cfg(not(unix))]
        std::future::pending::<()>().await;
    })
}

async fn demo(args: &Args, orders: &[Order]) -> Result<ExitCode> {
    // Before there is anything to clean up.
    let interrupted = interruption()?;
    let (first_s, last_s) = span(orders);
    let whole = Schedule::new(Instant::now(), first_s, args.speed);
    let progress = Progress::new();
    progress.say(&format!(
        "{} orders from {} to {}, {} times as fast: about {:.0?}",
        thousands(orders.len() as u64),
        input::day(first_s),
        input::day(last_s),
        thousands(args.speed),
        whole.instant(last_s) - whole.start(),
    ));

    // A random name for this run: std seeds its hashers randomly.
    let run = format!("{:016x}", RandomState::new().build_hasher().finish());
    // An order that fails five attempts becomes a dead letter, and the audit shows it. This call
    // also creates the queue.
    let queue = connect()
        .await?
        .queue(&format!("order-auto-rating-{run}"))?;
    queue.configure(QueueLimits::new().max_attempts(5)).await?;
    let database = Database::new(args.database.as_deref(), &run)?;
    let tally = Arc::new(Tally::default());
    let mut staff = Staff::hire(args.workers, queue.name(), &database.path, &progress);
    let outcome = tokio::select! {
        outcome = replay(args, orders, &queue, &database.path, &progress, &tally) => outcome,
        error = staff.failed() => Err(error),
        () = interrupted => Err(anyhow!("interrupted")),
    };
    progress.clear();
    let dismissed = staff.dismiss().await;
    let audit = match outcome.and(dismissed) {
        Ok(()) => audit::audit(
            &books::open(&database.path)?,
            orders,
            &tally,
            &queue.stats().await?,
        ),
        Err(error) => Err(error),
    };
    let cleaned = queue.delete().await.context("cannot delete the queue");
    let audit = audit?;
    cleaned?;

    if args.json {
        println!("{}", serde_json::to_string_pretty(&audit.report)?);
    } else {
        print!("{}", report::text(&audit));
    }
    if audit.complaints.is_empty() {
        progress.say("the books balance");
        return Ok(ExitCode::SUCCESS);
    }
    bail!("the books do not balance: {}", audit.complaints.join("; "))
}

/// Returns when all orders have ended and the queue is empty.
async fn replay(
    args: &Args,
    orders: &[Order],
    queue: &Queue,
    database: &Path,
    progress: &Progress,
    tally: &Arc<Tally>,
) -> Result<()> {
    all_at_work(queue, args.workers).await?;
    let (first_s, last_s) = span(orders);
    let schedule = Schedule::new(Instant::now(), first_s, args.speed);
    let books = books::Writer::start(database)?;
    let shop = Shop {
        queue: queue.clone(),
        books,
        schedule,
        tally: Arc::clone(tally),
    };
    tokio::select! {
        () = progress.follow(schedule, schedule.instant(last_s), tally, queue) => Ok(()),
        result = books::checkpoint(database) => result,
        result = async { shop.replay(orders).await?; all_done(queue).await } => result,
    }
}

fn span(orders: &[Order]) -> (i64, i64) {
    let first_s = orders
        .iter()
        .map(|order| order.delivered_s)
        .min()
        .unwrap_or(0);
    (
        first_s,
        orders.iter().map(Order::last_s).max().unwrap_or(first_s),
    )
}

async fn all_at_work(queue: &Queue, workers: u16) -> Result<()> {
    let begin = Instant::now();
    while queue.stats().await?.nodes < u64::from(workers) {
        ensure!(
            begin.elapsed() < Duration::from_secs(30),
            "the workers do not begin"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Returns when no message is scheduled, ready or leased.
async fn all_done(queue: &Queue) -> Result<()> {
    loop {
        let stats = queue.stats().await?;
        if stats.scheduled + stats.ready + stats.leased == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Path of the database, which is removed at the end unless the user named it.
struct Database {
    path: PathBuf,
    keep: bool,
}

impl Database {
    fn new(asked: Option<&Path>, run: &str) -> Result<Self> {
        let path = asked.map_or_else(
            || std::env::temp_dir().join(format!("order-auto-rating-{run}.sqlite")),
            Path::to_owned,
        );
        books::create(&path)?;
        Ok(Self {
            path,
            keep: asked.is_some(),
        })
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        for suffix in ["", "-wal", "-shm"].into_iter().filter(|_| !self.keep) {
            let mut path = self.path.clone().into_os_string();
            path.push(suffix);
            let _ = std::fs::remove_file(path);
        }
    }
}

//! How the queues of one worker share its handlers over time. Handlers sleep, and their messages are
//! due again at once, so that every queue always has a backlog.
//!
//! `DUEQ_SHARES=' ' cargo test --release -p dueq --test library fairness -- --nocapture` prints the
//! table of docs/performance/log.md, in 6 minutes; `DUEQ_SHARES=pulls` prints the rows of pulls
//! only. Without that variable, a few rows run at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use dueq::claims::Pullers;
use dueq::{Batch, Client, Delivery, Queue, Settlement, Share, WorkerHandle, in_batches};
use tokio::task::{JoinSet, LocalSet};

use crate::support::{LONG, Setup, messages, push_all, setup, until};

/// The allowed difference between handler time and weights, in percent of all handler time.
const POINTS: f64 = 3.0;
/// The most messages of a batch.
const BATCH: usize = 5;

/// The columns: what runs, the number of queues, their weights and the times of their handlers in
/// ms (repeated in turn), handlers of a node, nodes, partitions, seconds. The weight of a queue is
/// the number of its pulls on a node.
const SHORT: &str = "
    handlers 4 1 10 2 1 1 3
    handlers 2 1:10 10 1 1 1 3
    handlers 3 6:3:1 20:100:500 20 1 1 3
    handlers 80 1 50 64 1 1 3";

/// The rows of the long table. Rows with a single handler run at the same time.
const ALL: &str = "
    handlers 2 6:3 10 1 1 1 60
    handlers 4 6:3:1:2 10:100:1000 1 1 1 90
    handlers 4 6:3:1:2 1000:100:10 1 3 1 90
    handlers 2 1 10:1000 1 3 4 60
    handlers 50 1 10 1 1 1 60
    handlers 50 1 10:100:1000 1 1 1 90
    batches 4 6:3:1:2 10:100:1000 1 1 4 90
    handlers 2 6:3 10:1000 10 1 1 10
    handlers 2 3:6 10:1000 10 3 4 10
    handlers 4 6:3:1:2 10:100:1000 10 1 4 10
    handlers 50 6:3:1 10 10 1 1 10
    handlers 50 1 10:100:1000 10 1 1 20
    batches 50 1 10:100:1000 10 3 1 20
    handlers 2 6:3 10 64 1 1 8
    handlers 4 6:3:1:2 10:100:1000 64 1 1 10
    handlers 4 6:3:1:2 1000:100:10 64 3 4 10
    handlers 50 6:3:1:2 10:100:1000 64 1 4 20
    batches 4 6:3:1:2 10:100:1000 10 3 1 10
    batches 2 6:3 10 64 1 4 8
    pulls 50 1 10 50 1 1 8
    pulls 4 6:3:1:2 100:1000 12 1 1 10
    pulls 4 6:3:1:2 100:1000 12 3 4 10";

/// The row for [`take_turns`].
const TURNS: &str = "handlers 1000 1 10 10 1 1 20";

struct Row {
    text: &'static str,
    kind: &'static str,
    loads: Vec<Load>,
    handlers: usize,
    nodes: usize,
    partitions: usize,
    seconds: u64,
}

#[derive(Clone, Copy)]
struct Load {
    weight: u32,
    time: Duration,
}

impl Row {
    fn new(text: &'static str) -> Result<Self> {
        let words: Vec<_> = text.split_whitespace().collect();
        let [kind, numbers @ ..] = &words[..] else {
            bail!("{text}");
        };
        let numbers = numbers.iter().map(|word| {
            let parts = word.split(':').map(str::parse);
            parts.collect::<Result<Vec<u64>, _>>().context(text)
        });
        let numbers = numbers.collect::<Result<Vec<_>>>()?;
        let [queues, weights, times, rest @ ..] = &numbers[..] else {
            bail!("{text}");
        };
        let load = |number: usize| Load {
            weight: weights[number % weights.len()] as u32,
            time: Duration::from_millis(times[number % times.len()]),
        };
        Ok(Self {
            text,
            kind,
            loads: (0..queues[0] as usize).map(load).collect(),
            handlers: rest[0][0] as usize,
            nodes: rest[1][0] as usize,
            partitions: rest[2][0] as usize,
            seconds: rest[3][0],
        })
    }
}

/// What the handlers of each queue have done so far.
#[derive(Clone)]
struct Work(Arc<Mutex<Vec<Done>>>);

#[derive(Clone, Debug)]
struct Done {
    starts: Vec<Instant>,
    running: usize,
    /// The handler time until `changed`, in seconds.
    seconds: f64,
    changed: Instant,
    /// By how many seconds in all the handlers' sleeps took too long.
    late: f64,
}

impl Done {
    fn settle(&mut self, now: Instant) {
        self.seconds += self.running as f64 * (now - self.changed).as_secs_f64();
        self.changed = now;
    }
}

impl Work {
    fn new(queues: usize) -> Self {
        let none = Done {
            starts: Vec::new(),
            running: 0,
            seconds: 0.0,
            changed: Instant::now(),
            late: 0.0,
        };
        Self(Arc::new(Mutex::new(vec![none; queues])))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Done>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, queue: usize, change: impl FnOnce(&mut Done)) {
        let done = &mut self.lock()[queue];
        done.settle(Instant::now());
        change(done);
    }

    /// A handler that sleeps.
    async fn handle(self, queue: usize, time: Duration) -> Settlement {
        self.change(queue, |done| {
            done.starts.push(Instant::now());
            done.running += 1;
        });
        let start = Instant::now();
        tokio::time::sleep(time).await;
        let late = start.elapsed().saturating_sub(time).as_secs_f64();
        self.change(queue, |done| {
            done.running -= 1;
            done.late += late;
        });
        Settlement::again(Duration::ZERO)
    }

    /// A copy of the counts, with the handlers that run now counted until now.
    fn snapshot(&self) -> Vec<Done> {
        let mut work = self.lock();
        let now = Instant::now();
        work.iter_mut().for_each(|done| done.settle(now));
        work.clone()
    }
}

/// The running nodes of a row. They end when this is dropped.
#[derive(Default)]
struct Nodes {
    workers: Vec<WorkerHandle>,
    pullers: Vec<Pullers>,
    pulls: JoinSet<Result<()>>,
}

impl Nodes {
    /// Starts a node for these queues.
    async fn start(&mut self, row: &Row, url: &str, work: &Work, first: usize) -> Result<()> {
        let client = Client::connect(url).await?;
        if row.kind == "pulls" {
            let pullers = client.pullers();
            for (number, load) in row.loads.iter().enumerate() {
                let puller = pullers.attend(&queue(&client, number)?).await?;
                for _ in 0..load.weight {
                    let (puller, work, time) = (puller.clone(), work.clone(), load.time);
                    self.pulls.spawn(async move {
                        loop {
                            for delivery in puller.pull(1, LONG, LONG).await? {
                                let _ = work.clone().handle(first + number, time).await;
                                let _ = delivery.again(Duration::ZERO).await?;
                            }
                        }
                    });
                }
            }
            self.pullers.push(pullers);
            return Ok(());
        }
        let mut worker = client.worker().lease(LONG).concurrency(row.handlers);
        for (number, load) in row.loads.iter().enumerate() {
            let (queue, share) = (queue(&client, number)?, Share::weight(load.weight));
            let (work, time) = (work.clone(), load.time);
            let handle = move || work.clone().handle(first + number, time);
            worker = match row.kind {
                "batches" => {
                    let handler = move |_: Batch<Vec<u8>>| handle();
                    worker.queue_with(&queue, share, in_batches(BATCH, Duration::ZERO, handler))
                }
                _ => worker.queue_with(&queue, share, move |_: Delivery| handle()),
            };
        }
        self.workers.push(worker.spawn()?);
        Ok(())
    }

    async fn stop(mut self) -> Result<()> {
        self.pulls.shutdown().await;
        for puller in self.pullers {
            puller.shutdown().await?;
        }
        for worker in self.workers {
            worker.abort();
            worker.wait().await?;
        }
        Ok(())
    }
}

fn queue(client: &Client, number: usize) -> Result<Queue> {
    Ok(client.queue(&format!("q{number:03}"))?)
}

/// Returns what the handlers of each queue of each node did in a window of time, while all queues
/// had a backlog.
async fn measure(row: &Row) -> Result<Vec<Done>> {
    let Setup { client, server, .. } = &setup().await?;
    let queues = row.loads.len();
    // Enough messages that no queue runs out while two full claims await their settlements.
    let count = row.handlers * row.nodes * BATCH + 2_000 / queues;
    for number in 0..queues {
        let queue = queue(client, number)?;
        if row.partitions > 1 {
            queue.partition_into(row.partitions).await?;
        }
        push_all(&queue, messages(count)).await?;
    }
    let work = Work::new(queues * row.nodes);
    let mut nodes = Nodes::default();
    for node in 0..row.nodes {
        nodes
            .start(row, &server.url(), &work, node * queues)
            .await?;
    }
    let all_started = |work: &Vec<Done>| work.iter().all(|done| !done.starts.is_empty());
    until("all started", async || Ok(work.snapshot()), all_started).await?;
    let longest = row.loads.iter().map(|load| load.time).max();
    tokio::time::sleep(2 * longest.context("a queue")?).await;
    let before = work.snapshot();
    tokio::time::sleep(Duration::from_secs(row.seconds)).await;
    let after = work.snapshot();
    nodes.stop().await?;
    let between = before.iter().zip(after).map(|(before, mut after)| Done {
        starts: after.starts.split_off(before.starts.len()),
        seconds: after.seconds - before.seconds,
        late: after.late - before.late,
        ..after
    });
    Ok(between.collect())
}

/// Runs a row and prints it. Fails if the handler time does not follow the weights.
async fn check(row: Row, is_long: bool) -> Result<()> {
    let done = measure(&row).await?;
    let queues = row.loads.len();
    let weights: u32 = row.loads.iter().map(|load| load.weight).sum();
    let all: f64 = done.iter().map(|done| done.seconds).sum();
    let capacity = (row.handlers * row.nodes) as f64 * row.seconds as f64;
    let (mut late, mut differences) = (0.0_f64, Vec::new());
    for (number, load) in row.loads.iter().enumerate() {
        let nodes = || done[number..].iter().step_by(queues);
        let starts: usize = nodes().map(|done| done.starts.len()).sum();
        let time = load.time.as_secs_f64();
        let late_seconds: f64 = nodes().map(|done| done.late).sum();
        late = late.max(100.0 * late_seconds / (starts.max(1) as f64 * time));
        let percent = 100.0 * nodes().map(|done| done.seconds).sum::<f64>() / all;
        let fair = 100.0 * f64::from(load.weight) / f64::from(weights);
        // The window may cut one handler.
        let cut = 100.0 * time / capacity;
        differences.push((percent - fair, POINTS + cut));
    }
    let worst = differences
        .iter()
        .map(|(off, _)| off.abs())
        .fold(0.0, f64::max);
    let columns: Vec<_> = row.text.split_whitespace().collect();
    let run = 100.0 * all / capacity;
    println!("| {} | {worst:.2} | {run:.0} |", columns.join(" | "));
    // Beside other tests, the handlers' waits for a thread count as handler time too. These are
    // about as long as the excess of the sleeps.
    let late = if is_long { 0.0 } else { late };
    let is_fair = |(off, allowed): &(f64, f64)| off.abs() <= allowed + late;
    ensure!(
        differences.iter().all(is_fair),
        "{}: {differences:.1?}, late {late:.1}",
        row.text
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_time_follows_the_weights() -> Result<()> {
    let only = std::env::var("DUEQ_SHARES").ok();
    let is_long = only.is_some();
    let is_meant = |row: &&str| only.as_ref().is_none_or(|only| row.contains(only));
    let rows = if is_long { ALL } else { SHORT }
        .lines()
        .skip(1)
        .filter(is_meant);
    let rows = rows.map(Row::new).collect::<Result<Vec<_>>>()?;
    let (at_once, others): (Vec<_>, Vec<_>) =
        (rows.into_iter()).partition(|row| !is_long || row.handlers == 1);
    let (local, mut checks) = (LocalSet::new(), JoinSet::new());
    for row in at_once {
        checks.spawn_local_on(check(row, is_long), &local);
    }
    local.await;
    for checked in checks.join_all().await {
        checked?;
    }
    for row in others {
        check(row, is_long).await?;
    }
    if is_long && is_meant(&TURNS) {
        take_turns().await?;
    }
    Ok(())
}

/// 1,000 queues and 10 handlers: the n-th start of the last queue comes within two turns after that
/// of the first one. In a turn each queue starts one handler.
async fn take_turns() -> Result<()> {
    let row = Row::new(TURNS)?;
    let done = measure(&row).await?;
    let least = done.iter().map(|done| done.starts.len()).min();
    let all: usize = done.iter().map(|done| done.starts.len()).sum();
    let turn = row.seconds as f64 * done.len() as f64 / all as f64;
    let spread = |n: usize| {
        let nth = || done.iter().map(|done| done.starts[n]);
        let between = nth().min().zip(nth().max());
        between.map_or(0.0, |(first, last)| (last - first).as_secs_f64() / turn)
    };
    let least = least.context("a queue")?;
    let worst = (0..least).map(spread).fold(0.0, f64::max);
    println!("1,000 queues: {worst:.2} turns of {turn:.2} s, {least} starts at least");
    ensure!(least > 1 && worst <= 2.0, "{worst} turns");
    Ok(())
}

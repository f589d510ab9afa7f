//! How long the partitions of a killed master wait for the next delivery after the promotion of a
//! replica; and how partitions of other masters are affected.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use dueq::{Client, Delivery, Due, Message, Queue};
use dueq_testkit::cluster::{self, Cluster};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{partitioned, replicated};
use crate::curves::Output;

const MASTERS: usize = 3;
/// The interval between the due times of a partition's messages.
const APART: Duration = Duration::from_millis(20);
/// For how long messages become due: before the control run; below, in it, and after the kill.
const SETTLING: Duration = Duration::from_secs(4);
const CONTROL: Duration = Duration::from_secs(5);
const AFTER: Duration = Duration::from_secs(15);
/// How long the partitions are watched after the promotion.
const WATCHED: Duration = Duration::from_secs(4);

/// Kills masters of a cluster, and measures the time from the promotion of a replica to the next
/// delivery from each of its partitions. Each failover has a cluster of its own.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many failovers
    #[arg(long, default_value_t = 20)]
    failovers: usize,
    /// How many partitions
    #[arg(long, default_value_t = 12)]
    partitions: usize,
    /// How many worker nodes
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    #[command(flatten)]
    output: Output,
}

/// For each part of an id that leads to a partition: when its messages were due, and when they were
/// handled.
type Seen = Arc<Mutex<BTreeMap<String, Vec<(Instant, Instant)>>>>;

#[tokio::main]
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let (mut failovers, mut slowest) = (Vec::new(), Vec::new());
    for number in 0..arguments.failovers {
        let failover = fail_over(arguments, number % MASTERS).await?;
        eprintln!("{failover}");
        slowest.push(
            failover["slowest_partition_ms"]
                .as_f64()
                .context("a time")?,
        );
        failovers.push(failover);
    }
    slowest.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| slowest[((slowest.len() as f64 * share).ceil() as usize).max(1) - 1];
    arguments.output.write(&json!({
        "curve": "failovers",
        "partitions": arguments.partitions,
        "nodes": arguments.nodes,
        "half_within_ms": at(0.5),
        "nineteen_of_twenty_within_ms": at(0.95),
        "failovers": failovers,
    }))
}

async fn fail_over(arguments: &Arguments, master: usize) -> Result<Value> {
    let mut cluster = replicated(MASTERS).await?;
    let (queue, parts) = partitioned(&cluster.url(), arguments.partitions).await?;
    let lost = tags_of(&queue, &cluster, master).await?;
    let (stop, seen) = (CancellationToken::new(), Seen::default());
    let mut workers = Vec::new();
    for _ in 0..arguments.nodes {
        let queue = Client::connect(&cluster.url()).await?.queue("bench")?;
        workers.push(tokio::spawn(work(queue, Arc::clone(&seen), stop.clone())));
    }
    let begun = fill(&queue, &parts).await?;
    in_step(&cluster).await?;
    ensure!(
        begun.elapsed() < SETTLING,
        "filling the queue took too long"
    );

    let replica = cluster.masters[MASTERS + master].port();
    let control = begun + SETTLING;
    let killed = control + CONTROL;
    tokio::time::sleep_until(killed.into()).await;
    cluster.masters[master].kill()?;
    let promoted = promotion(replica).await?;
    ensure!(
        promoted + WATCHED < killed + AFTER,
        "the promotion took {:?}",
        promoted - killed
    );
    tokio::time::sleep_until((promoted + WATCHED).into()).await;
    stop.cancel();
    for worker in workers {
        worker.await??;
    }
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    report(&parts, &lost, &seen, (control, killed, promoted))
}

/// The tags of the partitions on a master.
async fn tags_of(queue: &Queue, cluster: &Cluster, master: usize) -> Result<BTreeSet<String>> {
    let address = format!(":{}", cluster.masters[master].port());
    let partitions = queue.partitions().await?.into_iter();
    let of_master = partitions.filter(|partition| partition.server.ends_with(&address));
    let tags: BTreeSet<_> = of_master.map(|partition| partition.tag).collect();
    ensure!(!tags.is_empty(), "the master has no partition");
    Ok(tags)
}

async fn work(queue: Queue, seen: Seen, stop: CancellationToken) -> Result<()> {
    let handler = move |delivery: Delivery| {
        let now = Instant::now();
        let id = delivery.id();
        let due = SystemTime::UNIX_EPOCH + Duration::from_millis(delivery.due_ms());
        let late = SystemTime::now().duration_since(due);
        let part = id.split_once('{').map_or("", |(_, part)| part);
        let due = now - late.unwrap_or_default();
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.entry(part.trim_end_matches('}').to_owned())
            .or_default()
            .push((due, now));
        std::future::ready(())
    };
    let worker = queue.worker().concurrency(64);
    worker
        .run(handler, async move { stop.cancelled().await })
        .await?;
    Ok(())
}

/// Pushes the messages of all partitions; returns the time at which they begin to become due.
async fn fill(queue: &Queue, parts: &BTreeMap<String, String>) -> Result<Instant> {
    let (begun, now) = (Instant::now(), SystemTime::now());
    let steps = (SETTLING + CONTROL + AFTER).as_millis() / APART.as_millis();
    let first = 3 * steps / 24; // while messages are being pushed, none is due
    for part in parts.values() {
        let message = |step: u128| {
            let due = now + APART * u32::try_from(step).unwrap_or(u32::MAX);
            Message::new(vec![b'x'; 100])
                .id(format!("{step}{{{part}}}"))
                .due(Due::from(due))
        };
        for receipt in queue.push_many((first..steps).map(message)).await {
            receipt?;
        }
    }
    Ok(begun)
}

/// Waits until each replica has all data that its master has now.
async fn in_step(cluster: &Cluster) -> Result<()> {
    for master in 0..MASTERS {
        let port = cluster.masters[master].port();
        // On one connection, because WAIT counts only what that client has written or seen.
        let mut connection = cluster::connection(port).await?;
        let replicas: u64 = redis::pipe()
            .cmd("PING")
            .ignore()
            .cmd("WAIT")
            .arg(&[1, 5_000])
            .query_async::<(u64,)>(&mut connection)
            .await?
            .0;
        ensure!(replicas == 1, "a replica is not in step");
    }
    Ok(())
}

/// The time at which this replica became a master, accurate to one or two milliseconds.
async fn promotion(replica: u16) -> Result<Instant> {
    let (mut connection, begun) = (cluster::connection(replica).await?, Instant::now());
    loop {
        let info: String = redis::cmd("INFO")
            .arg("replication")
            .query_async(&mut connection)
            .await?;
        if info.contains("role:master") {
            return Ok(Instant::now());
        }
        ensure!(begun.elapsed() < AFTER, "no replica was promoted");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn report(
    parts: &BTreeMap<String, String>,
    lost: &BTreeSet<String>,
    seen: &BTreeMap<String, Vec<(Instant, Instant)>>,
    (control, killed, promoted): (Instant, Instant, Instant),
) -> Result<Value> {
    let (mut firsts, mut calm, mut beside) = (Vec::new(), Longest::default(), Longest::default());
    for (tag, part) in parts {
        let handled = seen.get(part).context("a partition without a delivery")?;
        if lost.contains(tag) {
            let first = handled
                .iter()
                .map(|(_, at)| *at)
                .filter(|at| *at > promoted);
            let first = first.min().context("no delivery after the promotion")?;
            firsts.push(ms(first - promoted));
        } else {
            calm.watch(handled, control, killed);
            beside.watch(handled, killed, promoted + WATCHED);
        }
    }
    firsts.sort_unstable_by(f64::total_cmp);
    Ok(json!({
        "promotion_after_ms": ms(promoted - killed),
        "first_delivery_after_ms": firsts,
        "slowest_partition_ms": firsts.last(),
        "others": { "control": calm.json(), "failover": beside.json() },
    }))
}

/// The longest time between two deliveries of a partition, and its longest lateness.
#[derive(Default)]
struct Longest {
    gap: Duration,
    late: Duration,
}

impl Longest {
    /// Includes messages that were handled within this time.
    fn watch(&mut self, handled: &[(Instant, Instant)], since: Instant, until: Instant) {
        let mut within: Vec<_> = handled
            .iter()
            .filter(|(_, at)| (since..until).contains(at))
            .collect();
        within.sort_unstable_by_key(|(_, at)| *at);
        for (due, at) in &within {
            self.late = self.late.max(*at - *due);
        }
        let times = within.iter().map(|(_, at)| *at);
        let ends: Vec<Instant> = [since].into_iter().chain(times).chain([until]).collect();
        for pair in ends.windows(2) {
            self.gap = self.gap.max(pair[1] - pair[0]);
        }
    }

    fn json(&self) -> Value {
        json!({ "longest_gap_ms": ms(self.gap), "longest_lateness_ms": ms(self.late) })
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

//! What push, delivery and acknowledgement cost Redis beside so many messages that wait.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use dueq::Queue;
use dueq_bench_driver::{Dues, Order, unix_us};
use serde::Serialize;
use serde_json::json;

use super::Output;
use super::stores::{Floor, Store};
use crate::peers::server::Server;

/// How many messages each figure is of.
const SAMPLE: u64 = 20_000;
/// What waits is due within these hours, from the day after tomorrow on.
const FROM_MS: u64 = 48 * 3_600_000;
const SPREAD_MS: u64 = 24 * 3_600_000;

/// The cost of push, delivery and acknowledgement beside 1,000 to 10,000,000 messages that wait, here and with the floor.
///
/// In processor time of Redis per message, at batches of a hundred. Takes about 6.5 GB of memory for the most. Where Redis is
/// moving its tables to larger ones, which it does a step with each access, that is measured for itself, and again when it is
/// over.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many wait at most
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    most: u64,
    /// How the order of the pushes and that of the due times go together
    #[arg(long, value_enum, default_value_t = InOrder::Shuffled)]
    order: InOrder,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum InOrder {
    Forward,
    Backward,
    Shuffled,
}

/// One of the two, on a server of its own.
struct Side<S> {
    store: S,
    server: Server,
    order: Order,
    from_ms: u64,
}

/// Redis's processor time a message, in microseconds.
#[derive(Serialize)]
struct Cost {
    push_us: f64,
    push_now_us: f64,
    deliver_us: f64,
    ack_us: f64,
}

/// What it costs beside so many that wait, and what it cost before Redis had moved its tables, if it had to.
struct Step {
    settled: Cost,
    moving: Option<Cost>,
}

#[tokio::main]
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let order = match arguments.order {
        InOrder::Forward => Order::Forward,
        InOrder::Backward => Order::Backward,
        InOrder::Shuffled => Order::Shuffled,
    };
    let (mut dueq, mut floor) = (Side::<Queue>::start(order).await?, Side::<Floor>::start(order).await?);
    let (mut points, mut waiting) = (Vec::new(), 0);
    let steps = (3..=7).map(|power| 10_u64.pow(power)).filter(|step| *step <= arguments.most);
    for step in steps {
        let (ours, theirs) = (dueq.step(waiting, step).await?, floor.step(waiting, step).await?);
        waiting = step;
        points.push(json!({
            "waiting": waiting,
            "push_us": ours.settled.push_us, "push_now_us": ours.settled.push_now_us,
            "deliver_us": ours.settled.deliver_us, "ack_us": ours.settled.ack_us,
            "floor_push_us": theirs.settled.push_us, "floor_push_now_us": theirs.settled.push_now_us,
            "floor_deliver_us": theirs.settled.deliver_us, "floor_ack_us": theirs.settled.ack_us,
            "moving": ours.moving, "floor_moving": theirs.moving,
        }));
    }
    arguments.output.write(&json!({ "curve": "scale", "points": points }))
}

impl<S: Store> Side<S> {
    async fn start(order: Order) -> Result<Self> {
        let server = Server::private_with(&["--enable-debug-command", "local"]).await?;
        let store = S::connect(&server.address()).await?;
        let mut side = Self { store, server, order, from_ms: unix_us() / 1_000 + FROM_MS };
        // The first calls load scripts and make connections.
        side.deliver().await?;
        Ok(side)
    }

    /// Lets so many wait instead of so many, and measures.
    async fn step(&mut self, from: u64, to: u64) -> Result<Step> {
        let n = to - from;
        for start in (0..n).step_by(10_000) {
            let end = n.min(start + 10_000);
            self.store.push((start..end).map(|i| self.due(i, n))).await?;
        }
        let mut moving = None;
        if self.is_moving().await? {
            moving = Some(self.measure(to, "while its tables are moved").await?);
            for (read, key) in S::TABLES {
                self.server.end_rehashing(read, key).await?;
            }
        }
        Ok(Step { settled: self.measure(to, "").await?, moving })
    }

    async fn measure(&mut self, waiting: u64, remark: &str) -> Result<Cost> {
        let before = self.cpu_us().await?;
        let far = self.store.push((0..SAMPLE).map(|i| self.due(i, SAMPLE))).await?;
        let push_us = (self.cpu_us().await? - before) / SAMPLE as f64;
        // So that the next figure is of as many that wait.
        self.store.withdraw(far).await?;
        let (push_now_us, deliver_us, ack_us) = self.deliver().await?;
        eprintln!(
            "{waiting:>9} waiting, {:5}: push {push_us:.2}, push for now {push_now_us:.2}, deliver {deliver_us:.2}, \
             ack {ack_us:.2} us {remark}",
            S::NAME
        );
        Ok(Cost { push_us, push_now_us, deliver_us, ack_us })
    }

    /// Whether Redis is moving a table of what waits to a larger one.
    async fn is_moving(&mut self) -> Result<bool> {
        for (_, key) in S::TABLES {
            if self.server.is_rehashing(key).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// When message `i` of `n` that wait for long is due.
    fn due(&self, i: u64, n: u64) -> Option<u64> {
        Dues { at_ms: self.from_ms, spread_ms: SPREAD_MS, order: self.order }.of(i, n)
    }

    /// Pushes a sample that is due at once, claims and acknowledges it; what each costs a message.
    async fn deliver(&mut self) -> Result<(f64, f64, f64)> {
        let started = self.cpu_us().await?;
        self.store.push((0..SAMPLE).map(|_| None)).await?;
        let pushed = self.cpu_us().await?;
        tokio::time::sleep(Duration::from_millis(2)).await; // due at once is due within the next millisecond
        let (mut claims, mut count) = (Vec::new(), 0);
        while count < SAMPLE {
            let claimed = self.store.claim().await?;
            if claimed.is_empty() {
                bail!("{count} of {SAMPLE} messages that are due were claimed, and no more");
            }
            count += claimed.len() as u64;
            claims.push(claimed);
        }
        let claimed = self.cpu_us().await?;
        for claim in claims {
            self.store.acknowledge(claim).await?;
        }
        let acked = self.cpu_us().await?;
        let each = |us: f64| us / SAMPLE as f64;
        Ok((each(pushed - started), each(claimed - pushed), each(acked - claimed)))
    }

    async fn cpu_us(&mut self) -> Result<f64> {
        self.server.cpu_us().await?.context("INFO of a Redis")
    }
}

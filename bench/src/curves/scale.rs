//! What push, delivery and acknowledgement cost Redis beside so many messages that wait.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use dueq::{Client, Due, Queue, Settled};
use dueq_bench_driver::{Dues, Order, unix_us};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{Output, message};
use crate::peers::server::Server;

/// How many messages each figure is of, and how many go in one call.
const SAMPLE: u64 = 20_000;
const BATCH: u64 = 100;
/// What waits is due within these hours, from the day after tomorrow on.
const FROM_MS: u64 = 48 * 3_600_000;
const SPREAD_MS: u64 = 24 * 3_600_000;
const LEASE: Duration = Duration::from_secs(600);

/// The cost of push, delivery and acknowledgement beside 1,000 to 10,000,000 messages that wait.
///
/// In processor time of Redis per message, at batches of a hundred.
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

struct Scale {
    queue: Queue,
    server: Server,
    order: Order,
    from_ms: u64,
}

#[tokio::main]
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let order = match arguments.order {
        InOrder::Forward => Order::Forward,
        InOrder::Backward => Order::Backward,
        InOrder::Shuffled => Order::Shuffled,
    };
    let server = Server::private().await?;
    let queue = Client::connect(&server.address()).await?.queue("scale")?;
    let mut scale = Scale { queue, server, order, from_ms: unix_us() / 1_000 + FROM_MS };
    // The first calls load scripts and make connections.
    scale.deliver().await?;
    let (mut points, mut waiting) = (Vec::new(), 0);
    let steps = (3..=7).map(|power| 10_u64.pow(power)).filter(|step| *step <= arguments.most);
    for step in steps {
        scale.fill(step - waiting).await?;
        waiting = step;
        points.push(scale.measure(waiting).await?);
    }
    arguments.output.write(&json!({ "curve": "scale", "points": points }))
}

impl Scale {
    /// Adds so many that wait for long.
    async fn fill(&self, n: u64) -> Result<()> {
        let dues = Dues { at_ms: self.from_ms, spread_ms: SPREAD_MS, order: self.order };
        for start in (0..n).step_by(10_000) {
            let end = n.min(start + 10_000);
            push(&self.queue, (start..end).filter_map(|i| dues.of(i, n)).map(Due::at_ms)).await?;
        }
        Ok(())
    }

    async fn measure(&mut self, waiting: u64) -> Result<Value> {
        let before = self.cpu_us().await?;
        let dues = Dues { at_ms: self.from_ms, spread_ms: SPREAD_MS, order: self.order };
        let mut far = Vec::new();
        for start in (0..SAMPLE).step_by(BATCH as usize) {
            let batch = (start..start + BATCH).filter_map(|i| dues.of(i, SAMPLE));
            far.extend(push(&self.queue, batch.map(Due::at_ms)).await?);
        }
        let push_us = (self.cpu_us().await? - before) / SAMPLE as f64;
        // So that the next figure is of as many that wait.
        for id in far {
            self.queue.cancel(id).await?;
        }
        let (push_now_us, deliver_us, ack_us) = self.deliver().await?;
        eprintln!(
            "{waiting:>9} waiting: push {push_us:.2}, push for now {push_now_us:.2}, deliver {deliver_us:.2}, ack {ack_us:.2} us"
        );
        Ok(json!({
            "waiting": waiting, "push_us": push_us, "push_now_us": push_now_us, "deliver_us": deliver_us, "ack_us": ack_us,
        }))
    }

    /// Pushes a sample that is due at once, claims and acknowledges it; what each costs a message.
    async fn deliver(&mut self) -> Result<(f64, f64, f64)> {
        let started = self.cpu_us().await?;
        for _ in 0..SAMPLE / BATCH {
            push(&self.queue, (0..BATCH).map(|_| Due::AfterMs(0))).await?;
        }
        let pushed = self.cpu_us().await?;
        tokio::time::sleep(Duration::from_millis(2)).await; // due at once is due within the next millisecond
        let mut deliveries = Vec::new();
        while (deliveries.len() as u64) < SAMPLE {
            let claimed = self.queue.claim(BATCH as usize, LEASE).await?;
            if claimed.is_empty() {
                bail!("{} of {SAMPLE} messages that are due were claimed, and no more", deliveries.len());
            }
            deliveries.extend(claimed);
        }
        let claimed = self.cpu_us().await?;
        for batch in deliveries.chunks(BATCH as usize) {
            let mut acks = JoinSet::new();
            for delivery in batch {
                let delivery = delivery.clone();
                acks.spawn(async move { delivery.ack().await });
            }
            while let Some(settled) = acks.join_next().await {
                if settled?? != Settled::Done {
                    bail!("a delivery was lost");
                }
            }
        }
        let acked = self.cpu_us().await?;
        let each = |us: f64| us / SAMPLE as f64;
        Ok((each(pushed - started), each(claimed - pushed), each(acked - claimed)))
    }

    async fn cpu_us(&mut self) -> Result<f64> {
        self.server.cpu_us().await?.context("INFO of a Redis")
    }
}

/// Pushes in one go; the ids.
async fn push(queue: &Queue, dues: impl Iterator<Item = Due>) -> Result<Vec<Vec<u8>>> {
    let messages: Vec<_> = dues.map(message).collect();
    let ids = messages.iter().map(|message| message.id_bytes().to_vec()).collect();
    for pushed in queue.push_many(messages).await {
        pushed?;
    }
    Ok(ids)
}

//! Measures Redis's cost of push, delivery and acknowledgement, by the number of waiting messages.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use dueq::Queue;
use dueq_bench_driver::{Dues, Order, unix_us};
use serde::Serialize;
use serde_json::json;

use super::Output;
use super::stores::{Floor, Store};
use crate::peers::measured::Figures;
use crate::peers::server::Server;

/// The number of messages that each figure covers.
const SAMPLE: u64 = 20_000;
/// The number of messages that wait on the second server of each round, for comparison.
const FEW: u64 = 10_000;
const ROUNDS: usize = 5;
/// The waiting messages are due within these hours, from the day after tomorrow on.
const FROM_MS: u64 = 48 * 3_600_000;
const SPREAD_MS: u64 = 24 * 3_600_000;

/// The cost of push, delivery and acknowledgement beside 1,000 to 10,000,000 messages that wait, here and with the floor.
///
/// In processor time of Redis per message, at batches of a hundred: medians of five rounds, in each of which the same is measured
/// beside 10,000 on another server, so that `growth` does not depend on how fast the machine was when. Takes about 6.5 GB of
/// memory for the most. Where Redis is moving its tables to larger ones, which it does a step with each access, that is measured
/// for itself, once, and the rest when it is over.
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

/// Redis's CPU time for each message, in microseconds; or its ratio to another such cost.
#[derive(Clone, Copy, Serialize)]
struct Cost {
    push: f64,
    push_now: f64,
    deliver: f64,
    ack: f64,
}

impl Cost {
    /// The median of each figure over several rounds.
    fn medians(rounds: &[Self]) -> Self {
        let median = |figure: fn(&Self) -> f64| {
            let mut figures = Figures::default();
            rounds.iter().for_each(|round| figures.add(figure(round)));
            figures.median().unwrap_or(f64::NAN)
        };
        Self {
            push: median(|cost| cost.push),
            push_now: median(|cost| cost.push_now),
            deliver: median(|cost| cost.deliver),
            ack: median(|cost| cost.ack),
        }
    }

    fn times(&self, other: &Self) -> Self {
        Self {
            push: self.push / other.push,
            push_now: self.push_now / other.push_now,
            deliver: self.deliver / other.deliver,
            ack: self.ack / other.ack,
        }
    }
}

#[tokio::main]
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let order = match arguments.order {
        InOrder::Forward => Order::Forward,
        InOrder::Backward => Order::Backward,
        InOrder::Shuffled => Order::Shuffled,
    };
    let (mut dueq, mut floor) = (
        Pair::<Queue>::start(order).await?,
        Pair::<Floor>::start(order).await?,
    );
    let (mut points, mut waiting) = (Vec::new(), 0);
    let steps = (3..=7)
        .map(|power| 10_u64.pow(power))
        .filter(|step| *step <= arguments.most);
    for step in steps {
        let moving = (
            dueq.many.grow(waiting, step).await?,
            floor.many.grow(waiting, step).await?,
        );
        waiting = step;
        for _ in 0..ROUNDS {
            dueq.round().await?;
            floor.round().await?;
        }
        let ((ours, growth), (theirs, floor_growth)) = (dueq.take(waiting), floor.take(waiting));
        points.push(json!({
            "waiting": waiting,
            "push_us": ours.push, "push_now_us": ours.push_now, "deliver_us": ours.deliver, "ack_us": ours.ack,
            "floor_push_us": theirs.push, "floor_push_now_us": theirs.push_now,
            "floor_deliver_us": theirs.deliver, "floor_ack_us": theirs.ack,
            "growth": growth, "floor_growth": floor_growth,
            "moving_us": moving.0, "floor_moving_us": moving.1,
        }));
    }
    arguments
        .output
        .write(&json!({ "curve": "scale", "points": points }))
}

/// A store (the queue or the floor) with many waiting messages, and one with few.
struct Pair<S> {
    many: Side<S>,
    few: Side<S>,
    /// For each round: the costs with the present number of waiting messages, and their ratios to
    /// those with few.
    costs: Vec<Cost>,
    growths: Vec<Cost>,
}

impl<S: Store> Pair<S> {
    async fn start(order: Order) -> Result<Self> {
        let (many, mut few) = (Side::start(order).await?, Side::start(order).await?);
        few.grow(0, FEW).await?;
        Ok(Self {
            many,
            few,
            costs: Vec::new(),
            growths: Vec::new(),
        })
    }

    async fn round(&mut self) -> Result<()> {
        let (many, few) = if self.costs.len().is_multiple_of(2) {
            (self.many.measure().await?, self.few.measure().await?)
        } else {
            let few = self.few.measure().await?;
            (self.many.measure().await?, few)
        };
        self.costs.push(many);
        self.growths.push(many.times(&few));
        Ok(())
    }

    /// The medians of the rounds since the last call.
    fn take(&mut self, waiting: u64) -> (Cost, Cost) {
        let [costs, growths] = [&mut self.costs, &mut self.growths].map(std::mem::take);
        let (cost, growth) = (Cost::medians(&costs), Cost::medians(&growths));
        eprintln!(
            "{waiting:>9} waiting, {:5}: push {:.2} us ({:.2} times that beside {FEW}), push for now {:.2} ({:.2}), \
             deliver {:.2} ({:.2}), ack {:.2} ({:.2})",
            S::NAME,
            cost.push,
            growth.push,
            cost.push_now,
            growth.push_now,
            cost.deliver,
            growth.deliver,
            cost.ack,
            growth.ack
        );
        (cost, growth)
    }
}

/// A store on its own server.
struct Side<S> {
    store: S,
    server: Server,
    order: Order,
    from_ms: u64,
}

impl<S: Store> Side<S> {
    async fn start(order: Order) -> Result<Self> {
        let server = Server::private_with(&["--enable-debug-command", "local"]).await?;
        let store = S::connect(&server.address()).await?;
        let mut side = Self {
            store,
            server,
            order,
            from_ms: unix_us() / 1_000 + FROM_MS,
        };
        // The first calls load scripts and open connections, so they are not measured.
        side.deliver().await?;
        Ok(side)
    }

    /// Changes the number of waiting messages. Returns the cost measured while Redis was moving a
    /// table, if it had to move one.
    async fn grow(&mut self, from: u64, to: u64) -> Result<Option<Cost>> {
        let n = to - from;
        for start in (0..n).step_by(10_000) {
            let end = n.min(start + 10_000);
            self.store
                .push((start..end).map(|i| self.due(i, n)))
                .await?;
        }
        if !self.is_moving().await? {
            return Ok(None);
        }
        eprintln!("{to:>9} waiting, {:5}: Redis moves its tables", S::NAME);
        let moving = self.measure().await?;
        for (read, key) in S::TABLES {
            self.server.end_rehashing(read, key).await?;
        }
        Ok(Some(moving))
    }

    async fn measure(&mut self) -> Result<Cost> {
        let before = self.cpu_us().await?;
        let far = self
            .store
            .push_known((0..SAMPLE).map(|i| self.due(i, SAMPLE)))
            .await?;
        let push = (self.cpu_us().await? - before) / SAMPLE as f64;
        // Withdraw them, so that the next figure has the planned number of waiting messages.
        self.store.withdraw(far).await?;
        let (push_now, deliver, ack) = self.deliver().await?;
        Ok(Cost {
            push,
            push_now,
            deliver,
            ack,
        })
    }

    /// Whether Redis is moving a table of waiting messages to a larger one.
    async fn is_moving(&mut self) -> Result<bool> {
        for (_, key) in S::TABLES {
            if self.server.is_rehashing(key).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The due time of message `i` of the `n` that wait.
    fn due(&self, i: u64, n: u64) -> Option<u64> {
        Dues {
            at_ms: self.from_ms,
            spread_ms: SPREAD_MS,
            order: self.order,
        }
        .of(i, n)
    }

    /// Pushes messages that are due at once, claims and acknowledges them. Returns the cost of each
    /// step per message.
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
        Ok((
            each(pushed - started),
            each(claimed - pushed),
            each(acked - claimed),
        ))
    }

    async fn cpu_us(&mut self) -> Result<f64> {
        self.server.cpu_us().await?.context("INFO of a Redis")
    }
}

//! The calls and the CPU time of a message on the masters of a cluster, under callers and a worker,
//! compared with one server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dueq::{Client, Delivery, Message, Queue};
use dueq_bench_driver::unix_us;
use dueq_testkit::Server;
use dueq_testkit::cluster::{Cluster, command};
use dueq_testkit::process::cpu_us;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::curves::nodes::{calls_by_verb, calls_of, count_calls};
use crate::curves::{Output, median};
use crate::peers::measured::Lateness;

/// How long a worker settles in: until it attends all partitions.
const SETTLING: Duration = Duration::from_secs(3);
/// How long the worker may take for all messages of a round.
const PATIENCE: Duration = Duration::from_secs(120);

/// Measures a message from its push to its ack, pushed by callers and handled by a worker: the
/// processor time of the masters, and how many messages a call has. A queue of partitions on a
/// cluster beside a queue on one server, neither with replicas.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many masters
    #[arg(long, default_value_t = 3)]
    masters: usize,
    /// How many partitions
    #[arg(long, default_value_t = 12)]
    partitions: usize,
    /// How many callers, each with one push in flight
    #[arg(long, default_value_t = 64)]
    callers: u64,
    /// How many handlers the worker has
    #[arg(long, default_value_t = 64)]
    handlers: usize,
    /// How many messages a round has
    #[arg(long, default_value_t = 40_000)]
    messages: u64,
    /// How many rounds
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    #[command(flatten)]
    output: Output,
}

/// The servers of one side, with a queue.
struct Contestant {
    name: &'static str,
    queue: Queue,
    /// The process and the port of each master.
    masters: Vec<(u32, u16)>,
    /// The figures of all rounds, by name.
    figures: BTreeMap<String, Vec<f64>>,
    late: Lateness,
}

#[tokio::main]
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    count_calls();
    let single = Server::start(&[])?;
    let cluster = Cluster::start(arguments.masters).await?;
    let mut contestants = [
        Contestant::new("one server", &single.url(), 1, &[&single]).await?,
        Contestant::new(
            "cluster",
            &cluster.url(),
            arguments.partitions,
            &cluster.masters.iter().collect::<Vec<_>>(),
        )
        .await?,
    ];
    let mut ratios = Vec::new();
    // The first round is not counted: it makes connections and loads the scripts.
    for round in 0..=arguments.rounds {
        for contestant in &mut contestants {
            contestant.round(arguments, round > 0).await?;
        }
        if let [Some(one), Some(many)] = contestants.each_ref().map(Contestant::last_us) {
            ratios.push(many / one);
        }
    }
    let result = json!({
        "curve": "cluster load",
        "messages_a_round": arguments.messages,
        "points": contestants.each_mut().map(Contestant::json),
        "ratio": median(&mut ratios),
        "ratios": ratios,
    });
    arguments.output.write(&result)
}

impl Contestant {
    async fn new(
        name: &'static str,
        url: &str,
        partitions: usize,
        masters: &[&Server],
    ) -> Result<Self> {
        let queue = Client::connect(url).await?.queue("bench")?;
        queue.partition_into(partitions).await?;
        Ok(Self {
            name,
            queue,
            masters: masters.iter().map(|it| (it.pid(), it.port())).collect(),
            figures: BTreeMap::new(),
            late: Lateness::default(),
        })
    }

    fn last_us(&self) -> Option<f64> {
        self.figures.get("redis_us")?.last().copied()
    }

    fn json(&mut self) -> Value {
        let figures = self.figures.iter_mut();
        let medians: BTreeMap<_, _> = figures.map(|(name, of)| (name, median(of))).collect();
        json!({ "servers": self.name, "a_message": medians, "late_ms": self.late.json(false) })
    }

    async fn round(&mut self, arguments: &Arguments, counts: bool) -> Result<()> {
        let late = Arc::new(Mutex::new(Vec::new()));
        let (left, all) = (
            Arc::new(AtomicU64::new(arguments.messages)),
            Arc::new(Notify::new()),
        );
        let (seen, end) = (Arc::clone(&late), Arc::clone(&all));
        let handler = move |delivery: Delivery| {
            let late_us = unix_us().cast_signed() - (delivery.due_ms() * 1_000).cast_signed();
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.push(late_us);
            if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                end.notify_one();
            }
            std::future::ready(())
        };
        let worker = self.queue.worker().concurrency(arguments.handlers);
        let worker = worker.spawn(handler)?;
        tokio::time::sleep(SETTLING).await;
        let (before, began) = (self.counted().await?, Instant::now());
        push(&self.queue, arguments.callers, arguments.messages).await?;
        tokio::time::timeout(PATIENCE, all.notified())
            .await
            .context("not all was handled")?;
        let took = began.elapsed().as_secs_f64();
        // Ends when the acks have their replies.
        worker.shutdown().await?;
        let after = self.counted().await?;
        if !counts {
            return Ok(());
        }
        let messages = arguments.messages as f64;
        let mut add = |name: String, figure| self.figures.entry(name).or_default().push(figure);
        add("per_s".to_owned(), messages / took);
        for (name, count) in after {
            let count = count - before.get(&name).copied().unwrap_or_default();
            if count == 0.0 {
                continue;
            }
            if ["push", "claim", "ack"].contains(&&*name) {
                add(format!("messages_a_{name}"), messages / count);
            }
            add(name, count / messages);
        }
        self.late
            .add(&late.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }

    /// The CPU times and the counts of calls so far, by name.
    async fn counted(&self) -> Result<BTreeMap<String, f64>> {
        let mut counted: BTreeMap<_, _> = calls_by_verb()
            .into_iter()
            .map(|(verb, calls)| (verb.to_owned(), calls as f64))
            .collect();
        let mut add = |name: &str, count| *counted.entry(name.to_owned()).or_default() += count;
        add("own_us", cpu_us(std::process::id())?);
        for (pid, port) in &self.masters {
            add("redis_us", cpu_us(*pid)?);
            let stats: String = command(*port, &["INFO", "commandstats"]).await?;
            for name in ["evalsha", "blpop"] {
                add(name, calls_of(&stats, name).unwrap_or_default());
            }
        }
        Ok(counted)
    }
}

/// Pushes messages with ids of the library's own, due at once.
async fn push(queue: &Queue, callers: u64, messages: u64) -> Result<()> {
    let next = Arc::new(AtomicU64::new(0));
    let mut running = JoinSet::new();
    for _ in 0..callers {
        let (queue, next) = (queue.clone(), Arc::clone(&next));
        running.spawn(async move {
            while next.fetch_add(1, Ordering::Relaxed) < messages {
                queue.push_message(Message::new(vec![b'x'; 100])).await?;
            }
            Ok::<_, dueq::Error>(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}

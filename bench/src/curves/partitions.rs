//! Measures what partitions cost on one server: Redis's CPU time for a push, with one partition and
//! with many.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{Client, Message, Queue};
use serde_json::{Value, json};

use super::nodes::calls_of;
use super::{Output, median};
use crate::peers::server::Server;

/// The number of messages that a round pushes.
const PUSHES: u64 = 60_000;
const BULK: usize = 10_000;

/// Measures Redis's CPU time of a push with one partition and with many, in interleaved rounds.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many partitions are compared with one
    #[arg(long, default_value_t = 12)]
    partitions: usize,
    /// How many rounds
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    #[command(flatten)]
    output: Output,
}

/// How messages are pushed.
#[derive(Clone, Copy)]
enum Load {
    /// This number of callers, each with one message in flight.
    Callers { callers: u64, chosen: bool },
    /// Calls of `push_many`.
    Bulk { chosen: bool },
}

const LOADS: [(&str, Load); 5] = [
    (
        "library ids, 64 callers",
        Load::Callers {
            callers: 64,
            chosen: false,
        },
    ),
    (
        "chosen ids, 64 callers",
        Load::Callers {
            callers: 64,
            chosen: true,
        },
    ),
    (
        "chosen ids, 512 callers",
        Load::Callers {
            callers: 512,
            chosen: true,
        },
    ),
    (
        "library ids, push_many of 10,000",
        Load::Bulk { chosen: false },
    ),
    (
        "chosen ids, push_many of 10,000",
        Load::Bulk { chosen: true },
    ),
];

#[tokio::main]
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let mut points = Vec::new();
    for (name, load) in LOADS {
        let mut ratios = Vec::new();
        let (mut one_partition, mut partitions) = <(Vec<_>, Vec<_>)>::default();
        for _ in 0..arguments.rounds {
            let one = measure(1, load).await?;
            let many = measure(arguments.partitions, load).await?;
            ratios.push(many.0 / one.0);
            one_partition.push(one);
            partitions.push(many);
        }
        let point = json!({
            "load": name,
            "one_partition": medians(&one_partition),
            "partitions": medians(&partitions),
            "ratio": median(&mut ratios),
            "ratios": ratios,
        });
        eprintln!("{point}");
        points.push(point);
    }
    let result: Value =
        json!({ "curve": "partitions", "partitions": arguments.partitions, "points": points });
    arguments.output.write(&result)
}

fn medians(figures: &[(f64, f64)]) -> Value {
    let mut each: (Vec<_>, Vec<_>) = figures.iter().copied().unzip();
    json!({ "push_us": median(&mut each.0), "pushes_per_call": median(&mut each.1) })
}

/// Redis's CPU time for a push, in microseconds; and the number of pushes per call.
async fn measure(partitions: usize, load: Load) -> Result<(f64, f64)> {
    let mut server = Server::private().await?;
    let client = Client::connect(&server.address()).await?;
    let queue = client.queue("partitions")?;
    queue.partition_into(partitions).await?;
    // First open connections, load the scripts and set the map, so that the figure excludes them.
    for receipt in queue.push_many((0..64).map(|n| message(n, true))).await {
        receipt?;
    }
    let before = counted(&mut server).await?;
    let pushed = push(&queue, load).await? as f64;
    let after = counted(&mut server).await?;
    Ok(((after.0 - before.0) / pushed, pushed / (after.1 - before.1)))
}

/// Redis's CPU time so far, and the number of script calls.
async fn counted(server: &mut Server) -> Result<(f64, f64)> {
    let cpu_us = server.cpu_us().await?.context("INFO of a Redis")?;
    let stats = server.info("commandstats").await?.unwrap_or_default();
    Ok((cpu_us, calls_of(&stats, "evalsha").unwrap_or_default()))
}

async fn push(queue: &Queue, load: Load) -> Result<u64> {
    match load {
        Load::Callers { callers, chosen } => {
            let next = Arc::new(AtomicU64::new(1_000));
            let mut running = tokio::task::JoinSet::new();
            for _ in 0..callers {
                let (queue, next) = (queue.clone(), Arc::clone(&next));
                running.spawn(async move {
                    loop {
                        let n = next.fetch_add(1, Ordering::Relaxed);
                        if n >= 1_000 + PUSHES {
                            return Ok::<_, dueq::Error>(());
                        }
                        queue.push_message(message(n, chosen)).await?;
                    }
                });
            }
            while let Some(ended) = running.join_next().await {
                ended??;
            }
            Ok(PUSHES)
        }
        Load::Bulk { chosen } => {
            let mut pushed = 0;
            while pushed < PUSHES {
                let first = 1_000 + pushed;
                let messages = (first..first + BULK as u64).map(|n| message(n, chosen));
                for receipt in queue.push_many(messages).await {
                    receipt?;
                    pushed += 1;
                }
            }
            Ok(pushed)
        }
    }
}

fn message(n: u64, chosen: bool) -> Message {
    let message = Message::new(vec![b'x'; 100]).due(Duration::from_secs(86_400));
    if chosen {
        message.id(format!("order:{n}"))
    } else {
        message
    }
}

//! Measures the commands that idle and busy nodes send to Redis, by the number of nodes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dueq::harness::{self, Observer, Reply};
use dueq::{Applied, Client, Delivery, Queue};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Output, message};
use crate::peers::server::{Server, number};
use dueq_testkit::process::cpu_us;

/// How long the nodes settle in; below, how long each figure is measured.
const SETTLING: Duration = Duration::from_secs(3);
const LENGTH: Duration = Duration::from_secs(6);
/// The interval between single messages, so long that each has its own due instant.
const APART: Duration = Duration::from_millis(60);
const AHEAD: Duration = Duration::from_millis(500);
/// Commands that clients send and no script of dueq calls.
const SENT: [&str; 4] = ["evalsha", "blpop", "ping", "ssubscribe"];

/// Counts the commands that nodes send to Redis, idle and busy, with 1 to 50 nodes on a queue.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many nodes
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "N,...",
        default_value = "1,2,5,10,20,50"
    )]
    nodes: Vec<usize>,
    /// How many partitions the queue has
    #[arg(long, default_value_t = 1)]
    partitions: usize,
    #[command(flatten)]
    output: Output,
}

/// Counts script calls by verb.
struct Calls;

static CALLS: LazyLock<Mutex<HashMap<&'static str, u64>>> = LazyLock::new(Mutex::default);

impl Observer for Calls {
    fn invoke(&self, _: u64, verb: &'static str, _: &str, _: &[&[u8]]) {
        *CALLS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(verb)
            .or_default() += 1;
    }

    fn done(&self, _: u64, _: Result<&Reply, (String, Applied)>) {}
}

/// From now on counts the script calls of this process.
pub(crate) fn count_calls() {
    harness::observe(Calls);
}

/// The script calls so far, by verb.
pub(crate) fn calls_by_verb() -> HashMap<&'static str, u64> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

#[tokio::main]
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    count_calls();
    let mut points = Vec::new();
    for &nodes in &arguments.nodes {
        points.push(measure(nodes, arguments.partitions).await?);
    }
    arguments
        .output
        .write(&json!({ "curve": "nodes", "points": points }))
}

/// The counts so far.
struct Counts {
    at: Instant,
    sent: f64,
    server_us: f64,
    own_us: f64,
    calls: HashMap<&'static str, u64>,
}

impl Counts {
    async fn take(server: &mut Server) -> Result<Self> {
        let info = server
            .info("commandstats")
            .await?
            .context("INFO of a Redis")?;
        let sent = SENT
            .iter()
            .filter_map(|command| calls_of(&info, command))
            .sum();
        let server_us = server.cpu_us().await?.context("INFO of a Redis")?;
        let calls = calls_by_verb();
        Ok(Self {
            at: Instant::now(),
            sent,
            server_us,
            own_us: cpu_us(std::process::id())?,
            calls,
        })
    }

    fn calls(&self, verb: &str) -> u64 {
        self.calls.get(verb).copied().unwrap_or(0)
    }
}

async fn measure(nodes: usize, partitions: usize) -> Result<Value> {
    let mut server = Server::private().await?;
    let queue = Client::connect(&server.address()).await?.queue("nodes")?;
    if partitions > 1 {
        queue.partition_into(partitions).await?;
    }
    let (stop, handled) = (CancellationToken::new(), Arc::new(AtomicU64::new(0)));
    let mut workers = Vec::new();
    for _ in 0..nodes {
        // A separate client for each node, so that each has its own connections, like a process.
        let queue = Client::connect(&server.address()).await?.queue("nodes")?;
        let (stop, handled) = (stop.clone(), Arc::clone(&handled));
        let handler = move |_: Delivery| {
            handled.fetch_add(1, Ordering::Relaxed);
            std::future::ready(())
        };
        workers.push(tokio::spawn(
            queue
                .worker()
                .run(handler, async move { stop.cancelled().await }),
        ));
    }
    queue.push_message(message(Duration::ZERO.into())).await?;
    // With several partitions, nodes hand partitions over whenever another node starts, so it takes
    // longer.
    let settling = if partitions > 1 { 4 } else { 1 } * SETTLING;
    tokio::time::sleep(settling).await;

    let before = Counts::take(&mut server).await?;
    tokio::time::sleep(LENGTH).await;
    let idle = Counts::take(&mut server).await?;
    let pushed = one_by_one(&queue).await?;
    tokio::time::sleep(AHEAD * 2).await;
    let busy = Counts::take(&mut server).await?;
    stop.cancel();
    for worker in workers {
        worker.await??;
    }

    let seconds = (idle.at - before.at).as_secs_f64();
    let each = |verb| (busy.calls(verb) - idle.calls(verb)) as f64 / pushed as f64;
    let point = json!({
        "nodes": nodes,
        "partitions": partitions,
        "idle_commands_per_s": (idle.sent - before.sent) / seconds,
        "idle_commands_per_s_and_node": (idle.sent - before.sent) / seconds / nodes as f64,
        "idle_core_share_of_a_node": (idle.own_us - before.own_us) / 1e6 / seconds / nodes as f64,
        "idle_core_share_of_redis": (idle.server_us - before.server_us) / 1e6 / seconds,
        "busy_commands_per_instant": (busy.sent - idle.sent) / pushed as f64,
        "busy_redis_us_per_instant": (busy.server_us - idle.server_us) / pushed as f64,
        "promote_calls_per_instant": each("promote"),
        "claim_calls_per_instant": each("claim"),
        "handled": handled.load(Ordering::Relaxed),
        "pushed": pushed + 1,
    });
    eprintln!("{point}");
    Ok(point)
}

/// Pushes messages that are due one after the other; returns their number.
async fn one_by_one(queue: &Queue) -> Result<u64> {
    let count = (LENGTH.as_millis() / APART.as_millis()) as u64;
    for _ in 0..count {
        queue.push_message(message(AHEAD.into())).await?;
        tokio::time::sleep(APART).await;
    }
    Ok(count)
}

/// The number of calls of a command, from INFO commandstats.
pub(crate) fn calls_of(info: &str, command: &str) -> Option<f64> {
    let line = info.lines().find_map(|line| {
        line.strip_prefix("cmdstat_")?
            .strip_prefix(command)?
            .strip_prefix(':')
    })?;
    number(&line.replace('=', ":").replace(',', "\n"), "calls").ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_from_commandstats() {
        let info =
            "cmdstat_evalsha:calls=12,usec=9,usec_per_call=0.75\r\ncmdstat_ping:calls=3,usec=1\r\n";
        assert_eq!(
            (calls_of(info, "evalsha"), calls_of(info, "ping")),
            (Some(12.0), Some(3.0))
        );
        assert_eq!(calls_of(info, "eval"), None);
    }
}

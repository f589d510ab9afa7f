//! Measures the cost of many queues compared with one; and the lateness of queues beside a broken
//! one.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{Client, Queue};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::node::Node;
use super::{Arguments, percentiles, push_one, timed};
use crate::peers::server::{Server, number};
use dueq_testkit::process::status_bytes;

/// How long a node may take to settle in.
const SETTLING: Duration = Duration::from_secs(5);
/// Commands that clients send and no script of dueq calls.
const SENT: [&str; 10] = [
    "evalsha",
    "eval",
    "blpop",
    "ping",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "unsubscribe",
    "scan",
    "client|unblock",
];

/// Runs interleaved rounds: many queues, and one queue with the total rate of all; then one idle
/// queue.
pub(super) async fn many(arguments: &Arguments) -> Result<Value> {
    // The interval at which each of 1,000 queues gets one message a minute: 16.7 messages a second.
    let apart = Duration::from_secs(60) / u32::try_from(arguments.queues)?;
    let (mut many, mut one) = (Vec::new(), Vec::new());
    for _ in 0..arguments.rounds {
        many.push(cost(arguments.queues, Some(apart), arguments.seconds).await?);
        one.push(cost(1, Some(apart), arguments.seconds).await?);
    }
    let idle = cost(1, None, 10).await?;
    Ok(json!({ "queues": arguments.queues, "many": many, "one": one, "one_idle": idle }))
}

async fn cost(queues: usize, apart: Option<Duration>, seconds: u64) -> Result<Value> {
    let mut server = Server::private().await?;
    let url = server.address();
    let handles = open(&url, queues).await?;
    let own = number(&info(&mut server, "clients").await?, "connected_clients")?;
    let node = Node::start(&url, queues, false)?;
    sleep(SETTLING).await;
    let before = sent(&info(&mut server, "commandstats").await?);
    let start = tokio::time::Instant::now();
    let pushes = match apart {
        Some(apart) => push(&handles, apart, seconds).await?,
        None => {
            sleep(Duration::from_secs(seconds)).await;
            0
        }
    };
    let after = sent(&info(&mut server, "commandstats").await?);
    // The measurement ends with the last push, a little before `seconds` are over.
    let elapsed = start.elapsed().as_secs_f64();
    let connections = number(&info(&mut server, "clients").await?, "connected_clients")? - own;
    let (rss, threads) = (status_bytes(node.pid, "VmRSS")?, node.threads()?);
    sleep(Duration::from_secs(2)).await;
    let late: Vec<_> = node.stop().await?.into_iter().map(|(_, us)| us).collect();
    let result = json!({
        "commands_per_s": (after - before) / elapsed,
        "commands_per_s_without_pushes": (after - before - pushes as f64) / elapsed,
        "connections": connections,
        "rss_mib": rss as f64 / f64::from(1 << 20),
        "threads_beyond_the_runtime": threads,
        "pushed": pushes,
        "lateness": percentiles(late),
    });
    eprintln!("{queues} queues: {result}");
    Ok(result)
}

/// Runs 50 queues of which the first is broken, and measures the lateness of the others and of a
/// control.
pub(super) async fn broken(arguments: &Arguments) -> Result<Value> {
    let mut rounds = Vec::new();
    for _ in 0..arguments.rounds {
        let mut round = serde_json::Map::new();
        for fault in ["none", "wrong type", "layout", "paused", "blocking"] {
            round.insert(fault.to_owned(), beside(fault, arguments.seconds).await?);
        }
        rounds.push(Value::Object(round));
    }
    Ok(json!(rounds))
}

async fn beside(fault: &str, seconds: u64) -> Result<Value> {
    const QUEUES: usize = 50;
    let server = Server::private().await?;
    let url = server.address();
    let handles = open(&url, QUEUES).await?;
    for queue in &handles {
        push_one(queue, timed(0)).await?;
    }
    let node = Node::start(&url, QUEUES, fault == "blocking")?;
    sleep(Duration::from_secs(1)).await;
    let mut redis = redis::Client::open(url)?
        .get_multiplexed_async_connection()
        .await?;
    let key = |suffix: &str| {
        let keys = handles[0].keys();
        let key = keys.iter().find(|key| key.ends_with(suffix));
        key.cloned().context("a queue has this key")
    };
    match fault {
        "wrong type" => {
            let scheduled = key(":scheduled")?;
            redis::cmd("SET")
                .arg(scheduled)
                .arg("x")
                .exec_async(&mut redis)
                .await?;
        }
        "layout" => {
            let meta = key(":meta")?;
            let mut hset = redis::cmd("HSET");
            hset.arg(meta)
                .arg("layout")
                .arg(99)
                .exec_async(&mut redis)
                .await?;
        }
        "paused" => handles[0].pause().await?,
        _ => {}
    }
    sleep(SETTLING).await;
    let sound = if matches!(fault, "wrong type" | "layout") {
        1
    } else {
        0
    };
    let pushed = push(&handles[sound..], Duration::from_millis(10), seconds).await?;
    sleep(Duration::from_secs(2)).await;
    let late = node.stop().await?;
    // Leave out the first message of each queue: it created the queue, and waited for the node.
    let others: Vec<_> = (late.into_iter().filter(|&(queue, _)| queue > 0))
        .map(|(_, us)| us)
        .skip(QUEUES - 1)
        .collect();
    let result = json!({ "pushed": pushed, "others": percentiles(others) });
    eprintln!("{fault}: {result}");
    Ok(result)
}

async fn open(url: &str, queues: usize) -> Result<Vec<Queue>> {
    let client = Client::connect(url).await?;
    let open = (0..queues).map(|number| Ok(client.queue(&format!("q{number}"))?));
    open.collect()
}

/// Pushes to the queues in turn at a steady rate. Returns the number of messages.
async fn push(queues: &[Queue], apart: Duration, seconds: u64) -> Result<u64> {
    let count = (Duration::from_secs(seconds).as_micros() / apart.as_micros()) as usize;
    let mut ticks = interval(apart);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for queue in queues.iter().cycle().take(count) {
        ticks.tick().await;
        push_one(queue, timed(500)).await?;
    }
    Ok(count as u64)
}

async fn info(server: &mut Server, section: &str) -> Result<String> {
    server.info(section).await?.context("INFO of a Redis")
}

fn sent(info: &str) -> f64 {
    (SENT.iter())
        .filter_map(|command| {
            let line = info.lines().find_map(|line| {
                let rest = line.strip_prefix("cmdstat_")?.strip_prefix(command)?;
                rest.strip_prefix(":calls=")
            })?;
            line.split(',').next()?.parse::<f64>().ok()
        })
        .sum()
}

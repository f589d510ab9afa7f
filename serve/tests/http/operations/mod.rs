//! Operations on whole queues.

mod canaries;
mod faults;
mod groups;
mod kinds;
mod record;
mod repartitions;
mod requeues;
mod selections;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dueq::{Due, Message, MessageState, Queue};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::instance::{Answer, Instance};
pub(crate) use crate::instance::{JSON, LIMIT};

pub(crate) const AT: &str = "/v1/queues/orders/operations";

/// The number of dead messages at the start. `make proof NAME=operations` sets 100,000.
fn size() -> usize {
    let size = std::env::var("DUEQ_OPERATIONS_DEAD").ok();
    size.and_then(|size| size.parse().ok()).unwrap_or(3_000)
}

/// Begins an operation on the queue orders.
async fn begin(instance: &Instance, body: Value) -> Result<Answer> {
    let line = format!("POST {AT}");
    instance.ask(&line, &[JSON], &body.to_string()).await
}

/// Begins an operation, asserts that it began, and returns its address and the JSON of the answer.
async fn begun(instance: &Instance, body: Value) -> Result<(String, Value)> {
    let answer = begin(instance, body).await?;
    ensure!(answer.status == 202, "{answer:?}");
    let (address, shown) = (answer.header("location"), answer.json()?);
    assert_eq!(address, shown["href"].as_str(), "{answer:?}");
    Ok((address.context("an address")?.to_owned(), shown))
}

/// Reads an operation repeatedly until it is as expected.
async fn until(
    instance: &Instance,
    address: &str,
    expected: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let end = Instant::now() + LIMIT;
    loop {
        let answer = instance.call(&format!("GET {address}")).await?;
        ensure!(answer.status == 200, "{answer:?}");
        let shown = answer.json()?;
        if expected(&shown) {
            return Ok(shown);
        }
        ensure!(Instant::now() < end, "it stays {shown}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until an operation has ended.
async fn ended(instance: &Instance, address: &str) -> Result<Value> {
    until(instance, address, |shown| shown["state"] != "running").await
}

/// Begins an operation, and waits until it has ended.
async fn run(instance: &Instance, body: Value) -> Result<Value> {
    let (address, _) = begun(instance, body).await?;
    ended(instance, &address).await
}

/// Pushes this number of due messages, with ids that begin with `prefix`.
async fn push(queue: &Queue, prefix: &str, count: usize) -> Result<()> {
    let message = |number| Message::new("x").id(format!("{prefix}{number}"));
    for receipt in queue.push_many((0..count).map(message)).await {
        receipt?;
    }
    Ok(())
}

/// Buries this number of due messages; each gets the next of these errors, in rotation.
async fn bury_as(queue: &Queue, count: usize, errors: &[&'static str]) -> Result<()> {
    let mut buried = 0;
    while buried < count {
        let mut calls = JoinSet::new();
        for delivery in queue.claim((count - buried).min(1_000), LIMIT).await? {
            let error = errors[buried % errors.len()];
            calls.spawn(async move { delivery.bury(error).await.map(drop) });
            buried += 1;
        }
        for ended in calls.join_all().await {
            ended?;
        }
    }
    Ok(())
}

/// Buries this number of due messages.
async fn bury(queue: &Queue, count: usize) -> Result<()> {
    bury_as(queue, count, &["no\nsecond line"]).await
}

/// The queue `orders` with this number of dead messages, `old-0` and so on; and a time after their
/// deaths.
async fn dead(instance: &Instance, count: usize) -> Result<(Queue, u64)> {
    let queue = instance.client.queue("orders")?;
    // Each partition keeps its part of the dead messages, and ids are distributed unevenly.
    let limits = dueq::QueueLimits::new().keep_dead((10 * count as u64).max(100_000));
    queue.configure(limits).await?;
    push(&queue, "old-", count).await?;
    bury(&queue, count).await?;
    let last = queue
        .list_newest(MessageState::Dead, None, 1)
        .await?
        .messages;
    let last_ms = last.first().context("a dead one")?.time_ms;
    while queue.dues(&[]).await?.now_ms <= last_ms {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok((queue, last_ms))
}

/// Pushes this number of messages that are due far in the future.
async fn scheduled(queue: &Queue, count: usize) -> Result<u64> {
    let due_ms = 4_000_000_000_000;
    let message = |number| {
        Message::new("x")
            .id(format!("later-{number}"))
            .due(Due::at_ms(due_ms))
    };
    for receipt in queue.push_many((0..count).map(message)).await {
        receipt?;
    }
    Ok(due_ms)
}

/// The number of scheduled, ready, leased and dead messages.
async fn depths(queue: &Queue) -> Result<[u64; 4]> {
    let stats = queue.stats().await?;
    Ok([stats.scheduled, stats.ready, stats.leased, stats.dead])
}

/// The lines of the audit log about this operation.
fn lines_of(instance: &Instance, shown: &Value) -> Result<Vec<Value>> {
    let mut lines = instance.audit()?;
    lines.retain(|line| line["action"] == shown["id"]);
    Ok(lines)
}

/// Waits until the audit log has the last line of this operation.
async fn end_line(instance: &Instance, shown: &Value) -> Result<Value> {
    let end = Instant::now() + LIMIT;
    loop {
        let lines = lines_of(instance, shown)?;
        if let Some(last) = lines.into_iter().find(|line| line["event"] == "end") {
            return Ok(last);
        }
        ensure!(Instant::now() < end, "no end of {shown}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The body of a requeue with this pace.
fn requeue(before_ms: u64, pace: u64) -> Value {
    json!({ "kind": "requeue", "before_ms": before_ms, "pace": pace })
}

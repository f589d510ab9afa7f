//! The canary: a requeue goes on only if none of its first messages dies again.

use std::time::Duration;

use anyhow::Result;
use dueq::Queue;
use serde_json::{Value, json};

use super::{LIMIT, begun, dead, depths, ended, run, until};
use crate::assert_has;
use crate::instance::Instance;

fn body(canary: u64, wait_ms: u64) -> Value {
    json!({ "kind": "requeue", "canary": canary, "canary_wait_ms": wait_ms, "pace": 100_000 })
}

/// Claims this number of messages, and settles each with `settle`.
async fn each<F: Future<Output = Result<()>>>(
    queue: &Queue,
    count: usize,
    settle: impl Fn(usize, dueq::Delivery) -> F,
) -> Result<()> {
    let mut seen = 0;
    while seen < count {
        for delivery in queue.claim(count - seen, LIMIT).await? {
            settle(seen, delivery).await?;
            seen += 1;
        }
    }
    Ok(())
}

async fn ack(_: usize, delivery: dueq::Delivery) -> Result<()> {
    let _ = delivery.ack().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn death_of_a_canary_message_stops_the_requeue() -> Result<()> {
    for partitions in [1, 3] {
        let instance = Instance::open().await?;
        if partitions > 1 {
            instance
                .client
                .queue("orders")?
                .partition_into(partitions)
                .await?;
        }
        let size = super::size();
        let (queue, _) = dead(&instance, size).await?;
        let (address, _) = begun(&instance, body(10, 600_000)).await?;
        until(&instance, &address, |shown| {
            shown["canary"]["waiting"] == 10
        })
        .await?;
        let left = queue.stats().await?.dead;
        assert_eq!(left, size as u64 - 10, "the others wait for it");
        each(&queue, 10, async |number, delivery| {
            match number {
                2 => delivery.bury("still closed").await.map(drop)?,
                _ => ack(number, delivery).await?,
            }
            Ok(())
        })
        .await?;
        let end = ended(&instance, &address).await?;
        assert_has!(end, { "state": "stopped", "done": 10 });
        let reason = "1 of the canary's 10 messages died again: still closed";
        assert_eq!(end["reason"], reason);
        assert_eq!(queue.stats().await?.requeued, 10);
        assert_eq!(depths(&queue).await?, [0, 0, 0, size as u64 - 9]);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn requeue_goes_on_after_its_canary_is_settled() -> Result<()> {
    for partitions in [1, 3] {
        let instance = Instance::open().await?;
        if partitions > 1 {
            instance
                .client
                .queue("orders")?
                .partition_into(partitions)
                .await?;
        }
        let (queue, _) = dead(&instance, 100).await?;
        let (address, _) = begun(&instance, body(10, 600_000)).await?;
        each(&queue, 10, async |number, delivery| {
            match number {
                // A handler that calls `again` has handled the message.
                0 => delivery.again(Duration::from_secs(3_600)).await.map(drop)?,
                _ => ack(number, delivery).await?,
            }
            Ok(())
        })
        .await?;
        let end = ended(&instance, &address).await?;
        assert_has!(end, { "state": "done", "done": 100 });
        assert_eq!(
            end["canary"],
            json!({ "messages": 10, "settled": 10, "died": 0, "waiting": 0 })
        );
        assert_eq!(queue.stats().await?.requeued, 100);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unsettled_canary_stops_the_requeue() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, _) = dead(&instance, 100).await?;
    let end = run(&instance, body(5, 50)).await?;
    assert_has!(end, { "state": "stopped", "done": 5 });
    let reason = "5 of the canary's 5 messages were not settled in time, 0 of them failed";
    assert_eq!(end["reason"], reason);
    // Messages that failed wait for their next attempt: they have neither died nor succeeded.
    each(&queue, 5, ack).await?;
    let (address, _) = begun(&instance, body(3, 2_000)).await?;
    each(&queue, 3, async |_, delivery| {
        let _ = delivery.retry(Duration::from_secs(3_600), "no").await?;
        Ok(())
    })
    .await?;
    let end = ended(&instance, &address).await?;
    let reason = "3 of the canary's 3 messages were not settled in time, 3 of them failed";
    assert_has!(end, { "state": "stopped", "reason": reason });
    assert_eq!(queue.stats().await?.requeued, 8);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn canary_larger_than_the_dead_set_requeues_all() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, _) = dead(&instance, 3).await?;
    let (address, _) = begun(&instance, body(100, 600_000)).await?;
    each(&queue, 3, ack).await?;
    let end = ended(&instance, &address).await?;
    assert_has!(end, { "state": "done", "done": 3 });
    let none = run(&instance, body(100, 600_000)).await?;
    assert_has!(none, { "state": "done", "done": 0 });
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn requeue_can_be_stopped_while_its_canary_waits() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, _) = dead(&instance, 10).await?;
    let (address, _) = begun(&instance, body(2, 600_000)).await?;
    until(&instance, &address, |shown| shown["canary"]["waiting"] == 2).await?;
    instance.call(&format!("POST {address}/stop")).await?;
    let end = ended(&instance, &address).await?;
    assert_has!(end, { "state": "stopped", "done": 2 });
    assert_eq!(queue.stats().await?.requeued, 2);
    Ok(())
}

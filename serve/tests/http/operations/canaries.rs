//! The canary: a requeue goes on only if its first messages do not die again.

use std::time::Duration;

use anyhow::Result;
use dueq::Queue;
use serde_json::{Value, json};

use super::{LIMIT, begun, bury, dead, depths, ended, run, until};
use crate::instance::Instance;

fn body(canary: u64, wait_ms: u64) -> Value {
    json!({ "kind": "requeue", "canary": canary, "canary_wait_ms": wait_ms, "pace": 100_000 })
}

/// Claims so many messages, and settles each as `settle` does.
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
async fn canary_that_dies_again_stops_the_requeue() -> Result<()> {
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
        bury(&queue, 10).await?;
        let end = ended(&instance, &address).await?;
        assert_eq!(
            (&end["state"], &end["done"]),
            (&json!("stopped"), &json!(10)),
            "{end}"
        );
        let died = end["canary"]["died"].as_u64().expect("a count");
        let reason = format!("{died} of the canary's 10 messages died again: no");
        assert_eq!(end["reason"], json!(reason));
        assert_eq!(queue.stats().await?.requeued, 10);
        assert_eq!(depths(&queue).await?, [0, 0, 0, size as u64]);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_death_of_a_canary_suffices() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, _) = dead(&instance, 100).await?;
    let (address, _) = begun(&instance, body(5, 600_000)).await?;
    each(&queue, 5, async |number, delivery| {
        match number {
            2 => delivery.bury("still closed").await.map(drop)?,
            _ => delivery.ack().await.map(drop)?,
        }
        Ok(())
    })
    .await?;
    let end = ended(&instance, &address).await?;
    assert_eq!(end["state"], "stopped", "{end}");
    assert_eq!(
        end["reason"],
        "1 of the canary's 5 messages died again: still closed"
    );
    assert_eq!(queue.stats().await?.requeued, 5);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn settled_canary_lets_the_others_follow() -> Result<()> {
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
                // A message that is due again is handled.
                0 => delivery.again(Duration::from_secs(3_600)).await.map(drop)?,
                _ => ack(number, delivery).await?,
            }
            Ok(())
        })
        .await?;
        let end = ended(&instance, &address).await?;
        assert_eq!(
            (&end["state"], &end["done"]),
            (&json!("done"), &json!(100)),
            "{end}"
        );
        assert_eq!(
            end["canary"],
            json!({ "messages": 10, "settled": 10, "died": 0, "waiting": 0 })
        );
        assert_eq!(queue.stats().await?.requeued, 100);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn canary_that_nobody_settles_stops_the_requeue() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, _) = dead(&instance, 100).await?;
    let end = run(&instance, body(5, 50)).await?;
    assert_eq!(
        (&end["state"], &end["done"]),
        (&json!("stopped"), &json!(5)),
        "{end}"
    );
    let reason = "5 of the canary's 5 messages were not settled in time, 0 of them failed";
    assert_eq!(end["reason"], reason);
    // Failed ones wait for their next attempt: they neither died nor succeeded.
    each(&queue, 5, ack).await?;
    let (address, _) = begun(&instance, body(3, 2_000)).await?;
    each(&queue, 3, async |_, delivery| {
        let _ = delivery.retry(Duration::from_secs(3_600), "no").await?;
        Ok(())
    })
    .await?;
    let end = ended(&instance, &address).await?;
    let reason = "3 of the canary's 3 messages were not settled in time, 3 of them failed";
    assert_eq!(
        (&end["state"], &end["reason"]),
        (&json!("stopped"), &json!(reason)),
        "{end}"
    );
    assert_eq!(queue.stats().await?.requeued, 8);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn canary_larger_than_what_is_dead_is_all() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, _) = dead(&instance, 3).await?;
    let (address, _) = begun(&instance, body(100, 600_000)).await?;
    each(&queue, 3, ack).await?;
    let end = ended(&instance, &address).await?;
    assert_eq!(
        (&end["state"], &end["done"]),
        (&json!("done"), &json!(3)),
        "{end}"
    );
    let none = run(&instance, body(100, 600_000)).await?;
    assert_eq!(
        (&none["state"], &none["done"]),
        (&json!("done"), &json!(0)),
        "{none}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_canary_can_be_stopped() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, _) = dead(&instance, 10).await?;
    let (address, _) = begun(&instance, body(2, 600_000)).await?;
    until(&instance, &address, |shown| shown["canary"]["waiting"] == 2).await?;
    instance
        .ask(&format!("POST {address}/stop"), &[], "")
        .await?;
    let end = ended(&instance, &address).await?;
    assert_eq!(
        (&end["state"], &end["done"]),
        (&json!("stopped"), &json!(2)),
        "{end}"
    );
    assert_eq!(queue.stats().await?.requeued, 2);
    Ok(())
}

//! Settlements and extensions of deliveries by their handles.

mod refused;

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{Delivery, Message, MessageState, Queue};
use serde_json::{Value, json};

use crate::assert_has;
use crate::instance::{Answer, Instance, JSON};

const SETTLE: &str = "POST /v1/queues/orders/settlements";
const EXTEND: &str = "POST /v1/queues/orders/extensions";
const LONG: Duration = Duration::from_secs(600);

/// Pushes messages with these ids and claims them, in the order of the ids.
async fn claimed(queue: &Queue, ids: &[&str]) -> Result<Vec<Delivery>> {
    for id in ids {
        queue.push_message(Message::new("x").id(*id)).await?;
    }
    let puller = queue.puller();
    let mut all = Vec::new();
    while all.len() < ids.len() {
        all.extend(puller.pull(ids.len(), LONG, LONG).await?);
    }
    puller.shutdown().await?;
    all.sort_by_key(|delivery| ids.iter().position(|id| delivery.id() == *id));
    Ok(all)
}

fn handle(delivery: &Delivery) -> String {
    delivery.handle().to_string()
}

/// Sends settlements, and returns their results.
async fn settle(instance: &Instance, items: Value) -> Result<(Value, Vec<Value>)> {
    let body = json!({ "settlements": items }).to_string();
    let answer = instance.ask(SETTLE, &[JSON], &body).await?;
    assert_eq!(answer.status, 200, "{answer:?}");
    results(&answer)
}

fn results(answer: &Answer) -> Result<(Value, Vec<Value>)> {
    let counts = answer.json()?;
    let results = counts["results"].as_array().context("results")?.clone();
    Ok((counts, results))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_action_of_a_settlement_takes_effect() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let ids = ["ack", "retry", "bury", "release", "snooze", "again", "push"];
    let all = claimed(&queue, &ids).await?;
    let handles: Vec<_> = all.iter().map(handle).collect();
    let items = json!([
        { "handle": handles[0], "action": "ack" },
        { "handle": handles[1], "action": "retry", "delay": "1h", "error": "the bank is closed" },
        { "handle": handles[2], "action": "bury", "error": "no such order" },
        { "handle": handles[3], "action": "release" },
        { "handle": handles[4], "action": "snooze", "at": "2099-12-01T20:00:00+08:00" },
        { "handle": handles[5], "action": "again", "delay": "24h" },
        { "handle": handles[6], "action": "ack", "push": [{ "payload": "ship", "delay": "1h" }] },
    ]);
    let (counts, results) = settle(&instance, items.clone()).await?;
    assert_eq!(counts["done"], 7, "{counts}");
    let words: Vec<_> = results.iter().map(|result| &result["outcome"]).collect();
    assert_eq!(
        words,
        [
            "done",
            "scheduled",
            "done",
            "done",
            "scheduled",
            "done",
            "done"
        ]
    );
    assert_eq!(results[4]["due_ms"], 4_099_809_600_000_u64);
    assert_eq!(results[6]["pushed"][0]["id"], "{push}/1", "{counts}");
    let stored = async |id: &str| anyhow::Ok(queue.get(id).await?.context("a message")?);
    assert!(queue.get("ack").await?.is_none() && queue.get("push").await?.is_none());
    let retried = stored("retry").await?;
    assert_eq!(
        (retried.failures, &*retried.error),
        (1, "the bank is closed")
    );
    assert_eq!(Some(retried.time_ms), results[1]["due_ms"].as_u64());
    let buried = stored("bury").await?;
    assert_eq!(
        (buried.state, &*buried.error),
        (MessageState::Dead, "no such order")
    );
    assert_eq!(stored("snooze").await?.snoozes, 1);
    assert_eq!(stored("again").await?.state, MessageState::Scheduled);
    assert_eq!(stored("{push}/1").await?.payload, b"ship");
    // Repeated settlements change nothing, and their results say so.
    let (counts, results) = settle(&instance, items).await?;
    assert_has!(counts, { "done": 0, "lost": 7 });
    assert_eq!(results[0]["outcome"], "gone");
    assert_eq!(results[1]["outcome"], "lost");
    assert_eq!(stored("retry").await?.failures, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_at_a_fixed_time_is_not_delivered_early() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let all = claimed(&queue, &["1", "2"]).await?;
    let at_ms = instance.client.server_time().await?.now_ms() + 3_600_000;
    let items = all.iter().map(|delivery| {
        json!({ "handle": handle(delivery), "action": "retry", "at": at_ms.to_string() })
    });
    let (_, results) = settle(&instance, json!(items.collect::<Vec<_>>())).await?;
    for result in results {
        let due_ms = result["due_ms"].as_u64().context("a time")?;
        assert!((at_ms..at_ms + 600_000).contains(&due_ms), "{result}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn throttle_closes_the_queue() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let all = claimed(&queue, &["1"]).await?;
    let items = json!([{ "handle": handle(&all[0]), "action": "throttle", "for_ms": 60_000 }]);
    let (_, results) = settle(&instance, items).await?;
    assert_eq!(results[0]["outcome"], "closed");
    assert!(results[0]["closed_until_ms"].is_u64(), "{results:?}");
    assert!(queue.stats().await?.closed_ms > 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn thousand_settlements_share_calls_to_redis() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let ids: Vec<_> = (0..1_000).map(|id| id.to_string()).collect();
    for receipt in queue
        .push_many(ids.iter().map(|id| Message::new("x").id(&**id)))
        .await
    {
        receipt?;
    }
    let (puller, mut items) = (queue.puller(), Vec::new());
    while items.len() < 1_000 {
        for delivery in puller.pull(256, LONG, LONG).await? {
            items.push(json!({ "handle": handle(&delivery), "action": "ack" }));
        }
    }
    puller.shutdown().await?;
    let calls = || instance.redis.command(&["INFO", "commandstats"]);
    let of_scripts = |info: String| -> u64 {
        let lines = info.lines().filter(|line| {
            line.starts_with("cmdstat_evalsha:") || line.starts_with("cmdstat_fcall:")
        });
        let count = |line: &str| {
            line.split("calls=")
                .nth(1)?
                .split(',')
                .next()?
                .parse::<u64>()
                .ok()
        };
        lines.filter_map(count).sum()
    };
    let before = of_scripts(calls()?);
    let (counts, _) = settle(&instance, json!(items)).await?;
    assert_eq!(counts["done"], 1_000, "{}", counts["refused"]);
    let used = of_scripts(calls()?) - before;
    assert!(used < 200, "{used} calls");
    assert_eq!(queue.stats().await?.acked, 1_000);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn settlements_report_each_outcome_when_redis_fails() -> Result<()> {
    let mut instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let all = claimed(&queue, &["1", "2"]).await?;
    let body = json!({ "settlements": [
        { "handle": handle(&all[0]), "action": "ack" },
        { "handle": "x", "action": "ack" },
        { "handle": handle(&all[1]), "action": "retry", "delay": "1h" },
    ]});
    instance.redis.kill()?;
    let answer = instance.ask(SETTLE, &[JSON], &body.to_string()).await?;
    assert!(matches!(answer.status, 503 | 504), "{answer:?}");
    let problem = answer.json()?;
    let settled = &problem["settled"];
    assert_eq!(
        (&settled["failed"], &settled["refused"], &settled["done"]),
        (&json!(2), &json!(1), &json!(0)),
        "{problem}"
    );
    assert_eq!(settled["results"][0]["outcome"], "failed");
    assert!(settled["results"][0]["applied"].is_string(), "{problem}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn extension_makes_a_lease_end_later() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let all = claimed(&queue, &["1", "2"]).await?;
    let _ = all[1].ack().await?;
    let body = json!({ "extensions": [
        { "handle": handle(&all[0]), "lease_ms": 3_600_000 },
        { "handle": handle(&all[1]), "lease_ms": 3_600_000 },
        { "handle": "x", "lease_ms": 5 },
        { "handle": handle(&all[0]), "lease_ms": 3_700_000 },
        { "handle": handle(&all[1]), "lease_ms": 0 },
        { "handle": handle(&all[1]), "lease_ms": 86_400_001 },
        { "handle": handle(&all[1]), "lease_ms": -1 },
        { "handle": handle(&all[1]) },
    ]});
    let answer = instance.ask(EXTEND, &[JSON], &body.to_string()).await?;
    assert_eq!(answer.status, 200, "{answer:?}");
    let (counts, results) = results(&answer)?;
    assert_has!(counts, { "done": 1, "lost": 1, "refused": 6 });
    assert_eq!(
        (&results[0]["outcome"], &results[1]["outcome"]),
        (&json!("extended"), &json!("gone"))
    );
    let until_ms = results[0]["leased_until_ms"].as_u64().context("a time")?;
    assert!(until_ms > all[0].deadline_ms() + 2_000_000, "{counts}");
    assert_eq!(
        queue.get("1").await?.map(|stored| stored.time_ms),
        Some(until_ms)
    );
    Ok(())
}

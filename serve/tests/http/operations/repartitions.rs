//! Changes of the number of partitions: to their end, stopped, taken back, and refused.

use anyhow::Result;
use serde_json::json;

use super::{begin, begun, depths, ended, run, scheduled, until};
use crate::instance::Instance;
use crate::{assert_has, assert_refused};

#[tokio::test(flavor = "multi_thread")]
async fn queue_with_messages_gets_more_partitions() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    scheduled(&queue, 900).await?;
    let body = json!({ "kind": "repartition", "partitions": 3, "gentle": false });
    let (address, shown) = begun(&instance, body.clone()).await?;
    assert_has!(shown, { "kind": "repartition", "partitions": 3, "gentle": false });
    assert!(shown.get("pace").is_none(), "{shown}");
    let again = begin(&instance, body).await?;
    assert_eq!(again.status, 200, "{again:?}");
    let other = json!({ "kind": "repartition", "partitions": 2 });
    assert_refused!(begin(&instance, other).await?, 409, "operation_running");
    let end = ended(&instance, &address).await?;
    assert_has!(end, { "state": "done" });
    assert_has!(end["repartition"], { "phase": "complete" });
    let done = end["done"].as_u64().unwrap_or(0);
    assert!((400..900).contains(&done) && end["of"] == done, "{end}");
    assert_eq!(queue.partitions().await?.len(), 3);
    assert_eq!(depths(&queue).await?, [900, 0, 0, 0]);
    // There is nothing to do now.
    let same = run(&instance, json!({ "kind": "repartition", "partitions": 3 })).await?;
    assert_has!(same, { "state": "done", "done": 0 });
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_change_of_partitions_is_taken_back() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    scheduled(&queue, 900).await?;
    let nothing = run(&instance, json!({ "kind": "repartition", "abort": true })).await?;
    assert_has!(nothing, { "state": "failed" });
    assert_has!(nothing["problem"], { "code": "invalid_input", "applied": "no" });
    let body = json!({ "kind": "repartition", "partitions": 3 });
    let (address, _) = begun(&instance, body).await?;
    until(&instance, &address, |shown| {
        shown["repartition"]["phase"] == "moving" && shown["done"] != 0
    })
    .await?;
    let stop = instance.call(&format!("POST {address}/stop")).await?;
    assert_eq!(stop.status, 202, "{stop:?}");
    assert_has!(ended(&instance, &address).await?, { "state": "stopped" });
    assert_eq!(queue.partitions().await?.len(), 3, "old and new ones");
    let shown = instance.call("GET /v1/queues/orders").await?.json()?;
    assert_has!(shown, { "changing_to": 3, "partitions": 3 });
    // Another number is not begun before the change has ended.
    let other = run(&instance, json!({ "kind": "repartition", "partitions": 2 })).await?;
    assert_has!(other, { "state": "failed", "done": 0 });
    assert_has!(other["problem"], { "code": "redis_unavailable", "applied": "no" });
    let back = json!({ "kind": "repartition", "abort": true, "gentle": false });
    let end = run(&instance, back).await?;
    assert_has!(end, { "state": "done", "abort": true });
    let shown = instance.call("GET /v1/queues/orders").await?.json()?;
    assert_has!(shown, { "changing_to": 0, "moving": 0, "partitions": 1 });
    assert_eq!(queue.partitions().await?.len(), 1);
    assert_eq!(depths(&queue).await?, [900, 0, 0, 0]);
    Ok(())
}

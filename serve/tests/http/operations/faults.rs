//! Operations under faults: Redis goes away, a reply is lost, the queue is damaged or deleted.

use anyhow::Result;
use serde_json::json;

use super::{begun, dead, end_line, ended, push, requeue, until};
use crate::assert_has;
use crate::every::faults::{connections, unapplied};
use crate::instance::Instance;

#[tokio::test(flavor = "multi_thread")]
async fn operation_goes_on_after_redis_has_returned() -> Result<()> {
    let mut instance = Instance::open().await?;
    let (queue, before_ms) = dead(&instance, 400).await?;
    let (address, _) = begun(&instance, requeue(before_ms, 200)).await?;
    until(&instance, &address, |shown| {
        shown["done"].as_u64() > Some(40)
    })
    .await?;
    // Redis saves its data before it stops.
    let _ = instance.redis.command(&["SHUTDOWN", "SAVE"]);
    let waiting = until(&instance, &address, |shown| !shown["waiting"].is_null()).await?;
    assert_eq!(waiting["state"], "running", "{waiting}");
    assert_eq!(waiting["waiting"]["retryable"], true, "{waiting}");
    assert_ne!(
        waiting["waiting"]["applied"], "no",
        "some steps were done: {waiting}"
    );
    instance.redis.restart()?;
    let end = ended(&instance, &address).await?;
    assert_has!(end, { "state": "done", "waiting": null });
    let stats = queue.stats().await?;
    assert_eq!((stats.dead, stats.requeued), (0, 400));
    let (done, unknown) = (end["done"].as_u64(), end["unknown"].as_u64());
    let (done, unknown) = (done.expect("a count"), unknown.expect("a count"));
    assert!((done..=done + unknown).contains(&400), "{end}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn operation_reports_messages_of_a_lost_reply_as_unknown() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, before_ms) = dead(&instance, 100).await?;
    let proxy = dueq_testkit::Proxy::start(instance.redis.port())?;
    let other = Instance::before(&proxy.url()).await?;
    let (address, _) = begun(&other, requeue(before_ms, 100)).await?;
    until(&other, &address, |shown| shown["done"].as_u64() > Some(10)).await?;
    proxy.cut_reply_of("oldest");
    let end = ended(&other, &address).await?;
    assert_eq!(proxy.cuts(), 1);
    assert_has!(end, { "state": "done", "done": 90, "unknown": 10 });
    assert_eq!(queue.stats().await?.requeued, 100);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_reply_does_not_make_a_canary_larger() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, before_ms) = dead(&instance, 100).await?;
    let proxy = dueq_testkit::Proxy::start(instance.redis.port())?;
    let other = Instance::before(&proxy.url()).await?;
    // From now on Redis has the script: the lost reply is that of the step, not that of loading the
    // script.
    queue.requeue_steps(0).step(1).await?;
    proxy.cut_reply_of("oldest");
    let body = json!({
        "kind": "requeue", "before_ms": before_ms, "canary": 10, "canary_wait_ms": 600_000,
    });
    let (address, _) = begun(&other, body).await?;
    let shown = until(&other, &address, |shown| {
        shown["canary"]["waiting"] != json!(null)
    })
    .await?;
    assert_eq!(proxy.cuts(), 1);
    assert_eq!(
        (
            &shown["done"],
            &shown["unknown"],
            &shown["canary"]["waiting"]
        ),
        (&json!(0), &json!(10), &json!(10)),
        "{shown}"
    );
    assert_eq!(queue.stats().await?.requeued, 10);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_queue_fails_the_operation() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, before_ms) = dead(&instance, 100).await?;
    let (address, shown) = begun(&instance, requeue(before_ms, 50)).await?;
    until(&instance, &address, |shown| {
        shown["done"].as_u64() > Some(4)
    })
    .await?;
    // Another program overwrites a key of the queue.
    instance.redis.command(&["SET", &queue.keys()[5], "x"])?;
    let end = ended(&instance, &address).await?;
    assert_eq!(
        (
            &end["state"],
            &end["problem"]["code"],
            &end["problem"]["applied"]
        ),
        (&json!("failed"), &json!("redis_error"), &json!("yes")),
        "{end}"
    );
    let line = end_line(&instance, &shown).await?;
    assert_eq!(line["operation"]["problem"], end["problem"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn operation_waits_while_the_memory_of_redis_is_full() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, before_ms) = dead(&instance, 100).await?;
    let limit = |bytes| {
        instance
            .redis
            .command(&["CONFIG", "SET", "maxmemory", bytes])
    };
    limit("1")?;
    let (address, _) = begun(&instance, requeue(before_ms, 100_000)).await?;
    let waiting = until(&instance, &address, |shown| !shown["waiting"].is_null()).await?;
    assert_eq!(
        (&waiting["waiting"]["code"], &waiting["waiting"]["applied"]),
        (&json!("full"), &json!("no")),
        "{waiting}"
    );
    assert_eq!(queue.stats().await?.requeued, 0);
    limit("0")?;
    let end = ended(&instance, &address).await?;
    assert_has!(end, { "done": 100, "unknown": 0 });
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_queue_stops_the_operation() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, before_ms) = dead(&instance, 100).await?;
    let (address, _) = begun(&instance, requeue(before_ms, 50)).await?;
    until(&instance, &address, |shown| {
        shown["done"].as_u64() > Some(4)
    })
    .await?;
    queue.delete().await?;
    push(&queue, "new-", 1).await?;
    let end = ended(&instance, &address).await?;
    assert_has!(end, { "state": "stopped", "reason": "the queue was deleted" });
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn operation_is_not_begun_while_redis_is_away() -> Result<()> {
    let mut instance = Instance::open().await?;
    dead(&instance, 3).await?;
    let connections = connections(&instance)?;
    instance.redis.kill()?;
    let requeue = async || super::begin(&instance, json!({ "kind": "requeue" })).await;
    unapplied(connections, requeue).await?;
    instance.stop.cancel();
    instance.stopped().await
}

//! Deletes a queue only if it is still the one that the caller has read.

use anyhow::{Context, Result};
use serde_json::json;

use crate::assert_refused;
use crate::every::faults::{connections, unapplied};
use crate::instance::{Answer, Instance};

const AT: &str = "/v1/queues/orders";

async fn tag(instance: &Instance) -> Result<String> {
    let answer = instance.call(&format!("GET {AT}")).await?;
    let tag = answer.header("etag").context("a tag")?;
    Ok(tag.to_owned())
}

async fn delete(instance: &Instance, tag: &str) -> Result<Answer> {
    let header = format!("If-Match: {tag}");
    instance.ask(&format!("DELETE {AT}"), &[&header], "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_with_the_entity_tag_deletes_the_queue() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    let first = tag(&instance).await?;
    queue.push("x").id("2").await?;
    assert_eq!(tag(&instance).await?, first, "a push changes no tag");
    let answer = delete(&instance, &first).await?;
    assert_eq!(
        (answer.status, answer.json()?),
        (200, json!({ "queue": "orders", "outcome": "deleted" }))
    );
    assert!(!queue.exists().await?);
    // A repeated deletion after a lost reply finds no queue.
    assert_refused!(delete(&instance, &first).await?, 404, "no_such_queue");
    let lines = instance.audit()?;
    assert_eq!(
        (&lines[0]["method"], &lines[0]["queue"], &lines[1]["status"]),
        (&json!("DELETE"), &json!("orders"), &json!(200))
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_with_an_old_tag_leaves_a_recreated_queue() -> Result<()> {
    for partitions in [1, 3] {
        let instance = Instance::open().await?;
        let queue = instance.client.queue("orders")?;
        queue.partition_into(partitions).await?;
        instance.queue("orders").await?;
        let old = tag(&instance).await?;
        queue.delete().await?;
        queue.partition_into(partitions).await?;
        instance.queue("orders").await?;
        let answer = delete(&instance, &old).await?;
        assert_refused!(&answer, 412, "queue_changed");
        assert_eq!(answer.json()?["applied"], "no");
        assert_eq!(queue.stats().await?.scheduled, 1);
        let new = tag(&instance).await?;
        assert_ne!(old, new);
        let both = format!("{old}, {new}");
        assert_eq!(delete(&instance, &both).await?.status, 200);
        assert!(!queue.exists().await?);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_without_an_entity_tag_is_refused() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    let missing = instance.call(&format!("DELETE {AT}")).await?;
    assert_refused!(missing, 428, "if_match_required");
    let own = tag(&instance).await?;
    for wrong in ["", own.trim_matches('"'), "\"\u{e9}\"", "\"a\", *"] {
        let answer = delete(&instance, wrong).await?;
        assert_refused!(answer, 400, "invalid_input", "{wrong}");
    }
    for other in [
        format!("W/{own}"),
        "\"\"".to_owned(),
        "\"0123456789abcdef\"".to_owned(),
    ] {
        assert_refused!(delete(&instance, &other).await?, 412, "queue_changed");
    }
    assert_eq!(queue.stats().await?.scheduled, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn live_worker_serves_the_queue_after_its_deletion() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let (seen, mut got) = tokio::sync::mpsc::unbounded_channel();
    let (gate, open) = tokio::sync::watch::channel(false);
    let handler = move |_: Vec<u8>, delivery: dueq::Delivery| {
        let (seen, mut open) = (seen.clone(), open.clone());
        async move {
            let id = delivery.id().into_owned();
            let _ = seen.send(id.clone());
            if id == "held" {
                let _ = open.wait_for(|open| *open).await;
            }
            anyhow::Ok(())
        }
    };
    let (stop, worker) = (tokio_util::sync::CancellationToken::new(), queue.worker());
    let stopped = stop.clone().cancelled_owned();
    let running = tokio::spawn(async move { worker.concurrency(2).run(handler, stopped).await });
    queue.push("x").id("held").await?;
    assert_eq!(got.recv().await.as_deref(), Some("held"));
    let answer = delete(&instance, &tag(&instance).await?).await?;
    assert_eq!(answer.status, 200, "{answer:?}");
    queue.push("x").id("new").await?;
    assert_eq!(got.recv().await.as_deref(), Some("new"));
    // The worker's ack finds no message, and changes nothing.
    gate.send_replace(true);
    stop.cancel();
    running.await??;
    let stats = queue.stats().await?;
    assert_eq!((stats.pushed, stats.acked), (1, 1), "{stats:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_without_redis_is_not_applied() -> Result<()> {
    let mut instance = Instance::open().await?;
    instance.queue("orders").await?;
    let own = tag(&instance).await?;
    let connections = connections(&instance)?;
    instance.redis.kill()?;
    unapplied(connections, async || delete(&instance, &own).await).await?;
    Ok(())
}

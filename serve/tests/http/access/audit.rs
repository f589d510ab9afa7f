//! The audit log of calls.

use anyhow::{Context, Result};
use serde_json::json;

use crate::instance::Instance;
use crate::{assert_has, assert_refused};

#[tokio::test(flavor = "multi_thread")]
async fn action_has_an_audit_line_before_and_one_after() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    instance.queue("orders").await?;
    let answer = instance
        .ask_as(
            "operator",
            "PUT /v1/queues/orders/schedules/nightly?set=%62",
            "{\"every\": \"1h\"}",
        )
        .await?;
    assert_eq!(answer.json()?["outcome"], "created");
    let lines = instance.audit()?;
    let [start, end] = &lines[..] else {
        panic!("{lines:?}");
    };
    for (field, value) in [
        ("event", json!("start")),
        ("principal", json!("operator")),
        ("via", json!("token")),
        ("method", json!("PUT")),
        ("path", json!("/v1/queues/orders/schedules/nightly")),
        ("query", json!("set=%62")),
        ("queue", json!("orders")),
        ("body", json!({ "every": "1h" })),
    ] {
        assert_eq!(start[field], value, "{field} of {start}");
    }
    let peer = start["peer"].as_str().context("a peer")?;
    assert!(peer.starts_with("127.0.0.1:"), "{start}");
    assert_has!(end, { "event": "end", "status": 201, "action": start["action"] });
    let text = std::fs::read_to_string(instance.folder.join("audit.ndjson"))?;
    assert!(!text.contains(instance.token("operator")), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn action_is_refused_if_its_audit_line_cannot_be_written() -> Result<()> {
    let instance = Instance::with_tokens_and(|config| {
        config.audit_log = Some("/dev/full".into());
    })
    .await?;
    let queue = instance.queue("orders").await?;
    queue.pause().await?;
    let answer = instance
        .ask_as("operator", "DELETE /v1/queues/orders/pause", "")
        .await?;
    assert_refused!(&answer, 503, "audit_failed");
    assert_eq!(answer.json()?["applied"], "no");
    assert!(queue.stats().await?.paused, "nothing was done");
    let read = instance
        .ask_as("operator", "GET /v1/queues/orders", "")
        .await?;
    assert_eq!(read.status, 200, "reads need no line");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unopenable_audit_log_stops_the_start() -> Result<()> {
    let started = Instance::start(|config, folder| {
        config.audit_log = Some(folder.join("absent/audit.ndjson"));
        Ok(Vec::new())
    })
    .await;
    let error = started.err().context("it started")?.to_string();
    assert!(error.contains("cannot open the audit log"), "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_waits_for_an_action_of_a_disconnected_caller() -> Result<()> {
    use tokio::io::AsyncWriteExt;
    let mut instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    // The action waits for Redis, which does not answer.
    instance
        .redis
        .command(&["CLIENT", "PAUSE", "2000", "WRITE"])?;
    let mut stream = instance.connect().await?;
    let head = format!(
        "PUT /v1/queues/orders/pause HTTP/1.1\r\nHost: {}\r\n\r\n",
        instance.address
    );
    stream.write_all(head.as_bytes()).await?;
    while instance.audit()?.is_empty() {
        tokio::task::yield_now().await;
    }
    drop(stream);
    instance.stop.cancel();
    instance.stopped().await?;
    let lines = instance.audit()?;
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[1]["status"], 200);
    assert!(queue.stats().await?.paused);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn action_goes_on_if_its_caller_disconnects() -> Result<()> {
    use tokio::io::AsyncWriteExt;
    let mut instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    let mut stream = instance.connect().await?;
    let head = format!(
        "PUT /v1/queues/orders/pause HTTP/1.1\r\nHost: {}\r\n\r\n",
        instance.address
    );
    stream.write_all(head.as_bytes()).await?;
    // The audit line is written before the action is done. At that moment the client disconnects.
    while instance.audit()?.is_empty() {
        tokio::task::yield_now().await;
    }
    drop(stream);
    while instance.audit()?.len() < 2 {
        tokio::task::yield_now().await;
    }
    assert!(queue.stats().await?.paused);
    assert_eq!(instance.audit()?[1]["status"], 200);
    instance.stop.cancel();
    instance.stopped().await
}

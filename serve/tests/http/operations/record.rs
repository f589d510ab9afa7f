//! What the audit log and the list of operations contain.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{AT, begun, dead, depths, end_line, lines_of, requeue, run, until};
use crate::instance::Instance;
use crate::{assert_has, assert_refused};

#[tokio::test(flavor = "multi_thread")]
async fn operation_has_audit_lines_before_and_at_its_end() -> Result<()> {
    let instance = Instance::open().await?;
    let (_, before_ms) = dead(&instance, 30).await?;
    let (address, shown) = begun(&instance, requeue(before_ms, 10)).await?;
    let lines = instance.audit()?;
    // The request that began the operation is answered; the operation is still running.
    let of_request: Vec<_> = lines
        .iter()
        .filter(|line| line["method"] == "POST")
        .collect();
    let [request] = of_request[..] else {
        panic!("{lines:?}");
    };
    let [start] = &lines_of(&instance, &shown)?[..] else {
        panic!("{lines:?}");
    };
    assert_eq!(
        (&start["event"], &start["request"], &start["queue"]),
        (&json!("start"), &request["action"], &json!("orders"))
    );
    assert_has!(start, { "principal": "loopback", "via": "loopback" });
    let expected =
        json!({ "kind": "requeue", "before_ms": before_ms, "dry_run": false, "pace": 10 });
    assert_eq!(start["operation"], expected);
    until(&instance, &address, |shown| {
        shown["done"].as_u64() > Some(0)
    })
    .await?;
    assert_eq!(lines_of(&instance, &shown)?.len(), 1, "it has no end yet");
    instance.call(&format!("POST {address}/stop")).await?;
    let end = end_line(&instance, &shown).await?["operation"].clone();
    let last = super::ended(&instance, &address).await?;
    assert_has!(end, { "state": "stopped", "done": last["done"] });
    assert_has!(end, { "reason": last["reason"], "unknown": 0 });
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn end_of_an_operation_is_logged_before_it_is_shown() -> Result<()> {
    let instance = Instance::open().await?;
    dead(&instance, 30).await?;
    let ids = json!(["old-1", "none"]);
    let end = run(
        &instance,
        json!({ "kind": "cancel", "ids": ids, "dead": true }),
    )
    .await?;
    let lines = lines_of(&instance, &end)?;
    let [start, last] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert_eq!(
        (&start["operation"]["ids"], &start["operation"]["dead"]),
        (&json!(2), &json!(true))
    );
    assert_eq!(last["operation"]["skipped"]["absent"], 1);
    assert_eq!(last["operation"]["done"], 1);
    // The audit line of the request contains the ids.
    let lines = instance.audit()?;
    let request = lines.iter().find(|line| line["action"] == start["request"]);
    assert_eq!(request.map(|line| &line["body"]["ids"]), Some(&ids));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_of_the_server_ends_operations_and_audits_it() -> Result<()> {
    let mut instance = Instance::open().await?;
    let (queue, before_ms) = dead(&instance, 60).await?;
    let (address, shown) = begun(&instance, requeue(before_ms, 20)).await?;
    let until_some = |shown: &Value| shown["done"].as_u64() > Some(1);
    until(&instance, &address, until_some).await?;
    instance.stop.cancel();
    instance.stopped().await?;
    let lines = lines_of(&instance, &shown)?;
    let [_, end] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert_eq!(
        (
            &end["event"],
            &end["operation"]["state"],
            &end["operation"]["reason"]
        ),
        (
            &json!("end"),
            &json!("stopped"),
            &json!("the server stopped")
        )
    );
    let stats = queue.stats().await?;
    assert_eq!(end["operation"]["done"], json!(stats.requeued));
    assert!(stats.requeued < 60, "{stats:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn operation_is_refused_if_its_audit_line_fails() -> Result<()> {
    let instance = Instance::start(|config, _| {
        config.audit_log = Some("/dev/full".into());
        Ok(Vec::new())
    })
    .await?;
    let (queue, _) = dead(&instance, 3).await?;
    let answer = super::begin(&instance, json!({ "kind": "requeue" })).await?;
    assert_refused!(&answer, 503, "audit_failed");
    assert_eq!(depths(&queue).await?, [0, 0, 0, 3]);
    let listed = instance.call(&format!("GET {AT}")).await?;
    assert_eq!(listed.json()?, json!({ "operations": [] }));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn list_has_only_operations_on_queues_of_the_caller() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let audit = "{\"kind\": \"audit\"}";
    for queue in ["orders", "other-1", "other 2"] {
        instance.queue(queue).await?;
        let segment = queue.replace(' ', "%20");
        let line = format!("POST /v1/queues/{segment}/operations");
        let begun = instance.ask_as("operator", &line, audit).await?;
        assert_eq!(begun.status, 202, "{begun:?}");
    }
    for (name, expected) in [
        ("viewer", &["other 2", "other-1", "orders"][..]),
        ("foreigner", &["other 2", "other-1"]),
    ] {
        let list = instance.ask_as(name, "GET /v1/operations", "").await?;
        let list = list.json()?;
        let list = list["operations"].as_array().context("a list")?;
        let queues: Vec<_> = list.iter().map(|one| one["queue"].as_str()).collect();
        let expected: Vec<_> = expected.iter().copied().map(Some).collect();
        assert_eq!(queues, expected, "{name}: the newest first");
        for one in list {
            let href = one["href"].as_str().context("an address")?;
            let read = instance.ask_as(name, &format!("GET {href}"), "").await?;
            assert_eq!(read.json()?["id"], one["id"], "{href}");
        }
    }
    Ok(())
}

//! The answers to claims.

use std::time::Duration;

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dueq::Message;
use dueq::outcomes::RetryOutcome;
use dueq::schedules::Schedule;
use serde_json::json;

use super::{CLAIM, JSON, LIMIT, WAITS, deliveries, one, until};
use crate::instance::Instance;
use crate::{assert_has, assert_refused};

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test(flavor = "multi_thread")]
async fn delivery_has_the_fields_that_a_handler_needs() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let message = Message::new("rate \"it\"")
        .id("order:42")
        .trace_parent(TRACE)
        .max_attempts(1)
        .expires_after(LIMIT);
    queue.push_message(message).await?;
    let answer = instance.ask(CLAIM, &[JSON], WAITS).await?;
    assert_eq!(
        answer.header("content-type"),
        Some("application/json"),
        "{answer:?}"
    );
    assert!(answer.header("content-length").is_some(), "{answer:?}");
    assert_eq!(answer.json()?["repeated"], false);
    let delivery = one(&answer)?;
    let due_ms = delivery["due_ms"].as_u64().unwrap_or_default();
    assert_eq!(
        delivery,
        json!({
            "handle": delivery["handle"],
            "id": "order:42",
            "payload": "rate \"it\"",
            "due_ms": due_ms,
            "leased_until_ms": delivery["leased_until_ms"],
            "attempt": 1,
            "last_attempt": true,
            "failures": 0,
            "crashes": 0,
            "snoozes": 0,
            "traceparent": TRACE,
            "expires_at_ms": due_ms + 600_000,
        })
    );
    let leased_until_ms = delivery["leased_until_ms"].as_u64().unwrap_or_default();
    assert!(leased_until_ms >= due_ms + 600_000, "{delivery}");
    // A shell script finds the handle by this text.
    let handle = delivery["handle"].as_str().unwrap_or_default();
    assert!(
        answer.body.contains(&format!("\"handle\":\"{handle}\"")),
        "{answer:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn delivery_counts_its_earlier_failures_and_crashes() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    queue.push_message(Message::new("x").id("1")).await?;
    let lease = json!({ "wait_ms": 50_000, "lease_ms": 1 }).to_string();
    one(&instance.ask(CLAIM, &[JSON], &lease).await?)?;
    // The lease expires without a settlement.
    let delivery = one(&instance.ask(CLAIM, &[JSON], WAITS).await?)?;
    assert_has!(delivery, { "crashes": 1, "attempt": 2 });
    let handle = delivery["handle"].as_str().unwrap_or_default().parse()?;
    let retried = queue.delivery(handle).retry(Duration::ZERO, "no").await?;
    assert!(matches!(retried, RetryOutcome::Scheduled(_)), "{retried:?}");
    let delivery = one(&instance.ask(CLAIM, &[JSON], WAITS).await?)?;
    let counts = ["attempt", "failures", "crashes", "snoozes"].map(|name| delivery[name].as_u64());
    assert_eq!(counts, [Some(3), Some(1), Some(1), Some(0)], "{delivery}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn binary_payload_is_delivered_in_base64() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let (id, payload) = (b"\xff\xfeid".to_vec(), b"\x00\xff".to_vec());
    let message = Message::new(payload.clone()).id(id.clone());
    queue.push_message(message).await?;
    let delivery = one(&instance.ask(CLAIM, &[JSON], WAITS).await?)?;
    assert_eq!(delivery["id_base64"], STANDARD.encode(id));
    assert_eq!(delivery["payload_base64"], STANDARD.encode(payload));
    assert!(delivery["payload"].is_null(), "{delivery}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tick_names_its_schedule() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let beat = Schedule::every(Duration::from_millis(10)).name("beat");
    queue.schedules("billing").apply([beat]).await?;
    let delivery = one(&instance.ask(CLAIM, &[JSON], WAITS).await?)?;
    assert_eq!(delivery["tick"]["schedule"], "beat", "{delivery}");
    let nominal_ms = &delivery["tick"]["nominal_ms"];
    assert_eq!(delivery["id"], format!("beat@{nominal_ms}"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_waits_until_a_message_is_due() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let message = Message::new("x").due(Duration::from_millis(300));
    let receipt = queue.push_message(message).await?;
    let now = instance.ask(CLAIM, &[JSON], "{}").await?;
    assert_eq!((now.status, &*now.body), (204, ""), "{now:?}");
    let short = instance.ask(CLAIM, &[JSON], r#"{"wait_ms": 1}"#).await?;
    assert_eq!(short.status, 204, "{short:?}");
    let claim = instance.ask(CLAIM, &[JSON], WAITS);
    let delivery = one(&claim.await?)?;
    assert_eq!(delivery["due_ms"].as_u64(), receipt.due_ms());
    let granted_ms = delivery["leased_until_ms"].as_u64().unwrap_or_default() - 600_000;
    assert!(Some(granted_ms) >= receipt.due_ms(), "early: {delivery}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_takes_up_to_max_messages() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    for receipt in queue.push_many((0..300).map(|_| Message::new("x"))).await {
        receipt?;
    }
    until(&queue, "all are ready", |stats| {
        stats.ready + stats.scheduled == 300
    })
    .await?;
    let mut taken = 0;
    for max in [1, 7, 256] {
        let body = json!({ "max": max, "wait_ms": 50_000 }).to_string();
        let some = deliveries(&instance.ask(CLAIM, &[JSON], &body).await?)?;
        assert!((1..=max).contains(&some.len()), "{max}: {}", some.len());
        taken += some.len();
    }
    assert_eq!(queue.stats().await?.leased, taken as u64);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_claim_is_refused_and_takes_no_message() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    queue.push("x").await?;
    let long = "x".repeat(201);
    for body in [
        r#"{"max": 0}"#.to_owned(),
        r#"{"max": 257}"#.to_owned(),
        r#"{"max": 1001}"#.to_owned(),
        r#"{"max": -1}"#.to_owned(),
        r#"{"max": 1.5}"#.to_owned(),
        r#"{"max": "1"}"#.to_owned(),
        r#"{"max": 18446744073709551616}"#.to_owned(),
        r#"{"lease_ms": 0}"#.to_owned(),
        r#"{"lease_ms": 86400001}"#.to_owned(),
        r#"{"lease_ms": -5}"#.to_owned(),
        r#"{"wait_ms": 50001}"#.to_owned(),
        r#"{"wait_ms": -1}"#.to_owned(),
        r#"{"wait_ms": null}"#.to_owned(),
        r#"{"claim_id": ""}"#.to_owned(),
        r#"{"claim_id": "a b"}"#.to_owned(),
        r#"{"claim_id": "é"}"#.to_owned(),
        r#"{"claim_id": "a\u0000"}"#.to_owned(),
        r#"{"claim_id": 5}"#.to_owned(),
        format!(r#"{{"claim_id": "{long}"}}"#),
        r#"{"max": 1, "max": 2}"#.to_owned(),
        r#"{"maximum": 1}"#.to_owned(),
        r#"{"wait_ms": 1e400}"#.to_owned(),
        "[1]".to_owned(),
    ] {
        let answer = instance.ask(CLAIM, &[JSON], &body).await?;
        assert_refused!(&answer, 400, "invalid_input", "{body}");
        assert_eq!(answer.json()?["applied"], "no");
    }
    for body in [r#"{"wait_ms": NaN}"#, "{"] {
        let answer = instance.ask(CLAIM, &[JSON], body).await?;
        assert_refused!(&answer, 400, "bad_request", "{body}");
    }
    assert_refused!(
        instance
            .ask(CLAIM, &["Content-Type: text/plain"], "{}")
            .await?,
        415,
        "unsupported_media_type"
    );
    assert_refused!(
        instance
            .ask("POST /v1/queues/absent/claims", &[JSON], WAITS)
            .await?,
        404,
        "no_such_queue"
    );
    assert_eq!(queue.stats().await?.claimed, 0);
    let keys = instance.redis.command(&["KEYS", "dueq:{absent}:*"])?;
    assert_eq!(keys, "*0\r\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_beyond_memory_releases_or_keeps_its_messages() -> Result<()> {
    let instance = Instance::start(|config, _| {
        config.max_body_bytes = 20_000;
        Ok(Vec::new())
    })
    .await?;
    let queue = instance.client.queue("orders")?;
    // The payload fits into the memory for bodies, but its JSON does not.
    queue
        .push_message(Message::new("\u{1}".repeat(10_000)).id("1"))
        .await?;
    let answer = instance.ask(CLAIM, &[JSON], WAITS).await?;
    assert_refused!(&answer, 503, "bodies_full");
    until(&queue, "the release", |stats| stats.leased == 0).await?;
    // Messages that a repeated claim can return stay leased: if they were released, they could be
    // delivered twice.
    let repeatable = r#"{"wait_ms": 50000, "lease_ms": 600000, "claim_id": "a"}"#;
    for _ in 0..2 {
        let answer = instance.ask(CLAIM, &[JSON], repeatable).await?;
        assert_refused!(&answer, 503, "bodies_full");
    }
    let stats = queue.stats().await?;
    assert_eq!((stats.claimed, stats.leased), (2, 1));
    let stored = queue
        .get("1")
        .await?
        .map(|stored| (stored.crashes, stored.failures));
    assert_eq!(stored, Some((0, 0)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_of_many_queues_share_a_node() -> Result<()> {
    let instance = Instance::open().await?;
    for name in ["a", "b", "c"] {
        instance.client.queue(name)?.push(name).await?;
    }
    for name in ["a", "b", "c"] {
        let line = format!("POST /v1/queues/{name}/claims");
        let delivery = one(&instance.ask(&line, &[JSON], WAITS).await?)?;
        assert_eq!(delivery["payload"], name);
    }
    let nodes = async |name| {
        let nodes = instance.client.queue(name)?.nodes().await?;
        anyhow::Ok(nodes.into_iter().map(|node| node.id).collect::<Vec<_>>())
    };
    assert_eq!(nodes("a").await?.len(), 1);
    assert_eq!(nodes("a").await?, nodes("b").await?);
    Ok(())
}

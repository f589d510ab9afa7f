//! Single messages: push, read, change.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{Message, OnConflict};
use serde_json::{Value, json};

use crate::instance::{Instance, JSON};
use crate::{assert_has, assert_refused};

const AT: &str = "/v1/queues/orders/messages";
const LEASE: Duration = Duration::from_secs(60);

async fn get(instance: &Instance, id: &str) -> Result<Value> {
    let answer = instance.call(&format!("GET {AT}/{id}")).await?;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_put_creates_one_message() -> Result<()> {
    let instance = Instance::open().await?;
    let body = json!({ "payload": { "a": 1.0 }, "delay": "1h" });
    let answer = instance.send(&format!("PUT {AT}/order%2F4"), &body).await?;
    assert_eq!(answer.status, 201, "{answer:?}");
    let address = format!("{AT}/~b3JkZXIvNA");
    assert_eq!(answer.header("location"), Some(&*address));
    let created = answer.json()?;
    assert_has!(created, { "id": "order/4", "outcome": "created" });
    // The call is repeated, with the other encoding of the id.
    let again = instance.send(&format!("PUT {address}"), &body).await?;
    assert_eq!((again.status, again.header("location")), (200, None));
    let again = again.json()?;
    assert_eq!(again["outcome"], "exists");
    assert_eq!(again["state"], "scheduled");
    assert_eq!(again["due_ms"], created["due_ms"]);
    let read = get(&instance, "~b3JkZXIvNA").await?;
    assert_eq!(read["payload"], "{\"a\":1.0}");
    assert_eq!(read["due_ms"], created["due_ms"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn put_with_on_conflict_changes_a_waiting_message() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    let replace = json!({ "payload": "new", "delay": "2h", "on_conflict": "replace" });
    let moved = instance.send(&format!("PUT {AT}/1"), &replace).await?;
    assert_eq!(moved.status, 200, "{moved:?}");
    assert_eq!(moved.json()?["outcome"], "moved");
    assert_eq!(get(&instance, "1").await?["payload"], "new");
    // A handler has it.
    let _ = queue.run_now("1").await?;
    let delivery = queue.claim(1, LEASE).await?.pop().context("a delivery")?;
    let refused = instance.send(&format!("PUT {AT}/1"), &replace).await?;
    assert_refused!(&refused, 409, "leased");
    assert_eq!(refused.json()?["retryable"], true);
    let kept = instance
        .send(&format!("PUT {AT}/1"), &json!({ "payload": "x" }))
        .await?;
    assert_eq!(
        (kept.status, &kept.json()?["state"]),
        (200, &json!("leased"))
    );
    let _ = delivery.bury("why").await?;
    let refused = instance.send(&format!("PUT {AT}/1"), &replace).await?;
    assert_refused!(refused, 409, "dead");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn put_with_a_window_prevents_a_second_message() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    let body = json!({ "payload": "x", "window": "1h" });
    let line = format!("PUT {AT}/once");
    assert_eq!(instance.send(&line, &body).await?.status, 201);
    for delivery in queue.claim(1, LEASE).await? {
        let _ = delivery.ack().await?;
    }
    let answer = instance.send(&line, &body).await?;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()?["outcome"], "remembered");
    assert!(answer.json()?["remembered_until_ms"].is_u64());
    let ended = instance.call(&format!("GET {AT}/once")).await?;
    assert_refused!(&ended, 404, "no_such_message");
    assert_eq!(ended.json()?["ended"]["how"], "finished");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn business_hours_use_the_clock_of_redis() -> Result<()> {
    let instance = Instance::open().await?;
    let body =
        json!({ "payload": "x", "delay": "1h", "within": "Mon-Sun 00:00-24:00", "tz": "UTC" });
    let answer = instance.send(&format!("PUT {AT}/1"), &body).await?;
    let now_ms = instance.client.server_time().await?.now_ms();
    assert_eq!(answer.status, 201, "{answer:?}");
    let due_ms = answer.json()?["due_ms"].as_u64().context("a time")?;
    assert!((now_ms..=now_ms + 3_600_000).contains(&due_ms), "{due_ms}");
    let body = json!({ "within": "Mon-Sun 00:00-24:00", "tz": "UTC" });
    let moved = instance.send(&format!("PATCH {AT}/1"), &body).await?;
    assert_eq!(moved.status, 200, "{moved:?}");
    assert!(moved.json()?["due_ms"].as_u64().context("a time")? < due_ms);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_messages_are_refused_and_not_stored() -> Result<()> {
    let instance = Instance::open().await?;
    let line = format!("PUT {AT}/1");
    let nested = format!("{{\"payload\": {}", "[".repeat(100_000));
    for (body, code) in [
        ("", "bad_request"),
        ("{", "bad_request"),
        ("{\"payload\": NaN}", "bad_request"),
        (&*nested, "bad_request"),
        ("{\"payload\": \"x\"} {}", "bad_request"),
        ("[]", "invalid_input"),
        ("{}", "invalid_input"),
        ("{\"payload\": \"x\", \"payload\": \"y\"}", "invalid_input"),
        ("{\"payload\": \"x\", \"delay\": \"-1s\"}", "invalid_input"),
        ("{\"payload\": \"x\", \"delay\": 1e400}", "invalid_input"),
        (
            "{\"payload\": \"x\", \"delay\": \"200000d\"}",
            "invalid_input",
        ),
        ("{\"payload\": \"x\", \"at\": \"soon\"}", "invalid_input"),
        ("{\"payload\": \"x\", \"id\": \"2\"}", "invalid_input"),
        ("{\"payload\": \"x\", \"dealy\": \"1h\"}", "invalid_input"),
        ("{\"payload_base64\": \"?\"}", "invalid_input"),
        ("{\"payload\": \"x\", \"cost\": 0}", "invalid_input"),
    ] {
        let answer = instance.ask(&line, &[JSON], body).await?;
        let shown: String = body.chars().take(40).collect();
        let refusal = answer.refusal()?;
        assert_eq!(refusal, (400, code.to_owned()), "{shown}: {answer:?}");
        assert_eq!(answer.json()?["applied"], "no");
    }
    let form = instance
        .ask(&line, &["Content-Type: text/plain"], "{}")
        .await?;
    assert_refused!(form, 415, "unsupported_media_type");
    assert!(!instance.client.queue("orders")?.exists().await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_valid_id_has_an_address() -> Result<()> {
    let instance = Instance::open().await?;
    instance.queue("orders").await?;
    let longest = "x".repeat(200);
    for id in ["~_w", "%2e%2e", "%7EYWJj", "messages", &longest] {
        let answer = instance
            .ask(&format!("PUT {AT}/{id}"), &[JSON], "{\"payload\": \"x\"}")
            .await?;
        assert_eq!(answer.status, 201, "{id}: {answer:?}");
        let address = answer.header("location").context("an address")?.to_owned();
        let answer = instance.call(&format!("GET {address}")).await?;
        assert_eq!(answer.status, 200, "{id}: {answer:?}");
    }
    assert_eq!(get(&instance, "~_w").await?["id_base64"], "/w==");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn patch_moves_a_waiting_message() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    let line = format!("PATCH {AT}/1");
    let moved = instance
        .send(&line, &json!({ "at": "2000000000000" }))
        .await?;
    assert_eq!(
        (moved.status, moved.json()?),
        (
            200,
            json!({ "id": "1", "outcome": "moved", "due_ms": 2_000_000_000_000_u64 })
        )
    );
    let expected = json!({ "at": "2000000000001", "expected_due_ms": 7 });
    let answer = instance.send(&line, &expected).await?;
    assert_refused!(&answer, 409, "due_changed");
    let expected = json!({ "at": "2000000000001", "expected_due_ms": 2_000_000_000_000_u64 });
    assert_eq!(instance.send(&line, &expected).await?.status, 200);
    let now = instance.send(&line, &json!({ "run_now": true })).await?;
    assert_eq!(now.json()?["outcome"], "moved");
    for body in [
        json!({}),
        json!({ "run_now": false }),
        json!({ "run_now": true, "delay": "1h" }),
        json!({ "delay": "1h", "at": "now" }),
        json!({ "delay": -1 }),
        json!({ "tz": "UTC" }),
        json!({ "delay": "1h", "expected_due_ms": -1 }),
        json!({ "dealy": "1h" }),
    ] {
        assert_refused!(instance.send(&line, &body).await?, 400, "invalid_input");
    }
    let delivery = queue.claim(1, LEASE).await?.pop().context("a delivery")?;
    let later = json!({ "delay": "1h" });
    assert_refused!(instance.send(&line, &later).await?, 409, "leased");
    let _ = delivery.bury("why").await?;
    assert_refused!(instance.send(&line, &later).await?, 409, "dead");
    let now = instance.send(&line, &json!({ "run_now": true })).await?;
    assert_refused!(now, 409, "dead");
    let absent = instance.send(&format!("PATCH {AT}/2"), &later).await?;
    assert_refused!(absent, 404, "no_such_message");
    let absent = instance
        .send("PATCH /v1/queues/none/messages/2", &later)
        .await?;
    assert_refused!(absent, 404, "no_such_queue");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn delete_cancels_a_waiting_message() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    let line = format!("DELETE {AT}/1");
    for _ in 0..2 {
        let answer = instance.call(&line).await?;
        let cancelled = answer.json()?;
        assert_eq!(
            (answer.status, &cancelled["outcome"]),
            (200, &json!("cancelled"))
        );
        assert!(cancelled["undo_ms"].is_u64(), "{cancelled}");
    }
    let gone = instance.call(&format!("GET {AT}/1")).await?;
    assert_eq!(gone.json()?["ended"]["how"], "cancelled", "{gone:?}");
    let absent = instance.call(&format!("DELETE {AT}/2")).await?;
    assert_refused!(&absent, 404, "no_such_message");
    assert!(absent.json()?["ended"].is_null());
    let message = Message::new("x").id("2").on_conflict(OnConflict::Replace);
    queue.push_message(message).await?;
    let delivery = queue.claim(1, LEASE).await?.pop().context("a delivery")?;
    let line = format!("DELETE {AT}/2");
    assert_refused!(instance.call(&line).await?, 409, "leased");
    let _ = delivery.bury("why").await?;
    assert_refused!(instance.call(&line).await?, 409, "dead");
    let answer = instance.call(&format!("{line}?dead=true")).await?;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_refused!(
        instance.call(&format!("{line}?dead=perhaps")).await?,
        400,
        "invalid_input"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn requeue_of_a_dead_message_is_audited() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    let line = format!("POST {AT}/1/requeue");
    assert_refused!(instance.call(&line).await?, 409, "not_dead");
    let _ = queue.run_now("1").await?;
    for delivery in queue.claim(1, LEASE).await? {
        let _ = delivery.bury("first\nsecond").await?;
    }
    let dead = get(&instance, "1").await?;
    assert_has!(dead, { "state": "dead", "error": "first\nsecond" });
    assert!(dead["died_ms"].is_u64(), "{dead}");
    let answer = instance.call(&line).await?;
    assert_eq!(
        (answer.status, answer.json()?),
        (200, json!({ "id": "1", "outcome": "requeued" }))
    );
    assert_refused!(
        instance.call(&format!("POST {AT}/2/requeue")).await?,
        404,
        "no_such_message"
    );
    assert_eq!(instance.audit()?.len(), 6);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn full_queue_or_full_redis_answers_507() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    queue
        .configure(dueq::QueueLimits::new().max_messages(Some(1)))
        .await?;
    let body = json!({ "payload": "x" });
    let answer = instance.send(&format!("PUT {AT}/2"), &body).await?;
    assert_refused!(&answer, 507, "full");
    assert_eq!(answer.json()?["applied"], "no");
    instance
        .redis
        .command(&["CONFIG", "SET", "maxmemory", "1"])?;
    let answer = instance
        .send("PUT /v1/queues/mail/messages/2", &body)
        .await?;
    assert_refused!(&answer, 507, "full");
    assert_eq!(answer.json()?["applied"], "no");
    Ok(())
}

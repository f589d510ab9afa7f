//! Single messages: push, read, change.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{Message, OnConflict};
use serde_json::{Value, json};

use crate::assert_refused;
use crate::instance::{Answer, Instance};

const JSON: &str = "Content-Type: application/json";
const AT: &str = "/v1/queues/orders/messages";
const LEASE: Duration = Duration::from_secs(60);

/// Sends JSON.
async fn send(instance: &Instance, line: &str, body: &Value) -> Result<Answer> {
    instance.ask(line, &[JSON], &body.to_string()).await
}

async fn get(instance: &Instance, id: &str) -> Result<Value> {
    let answer = instance.ask(&format!("GET {AT}/{id}"), &[], "").await?;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn put_creates_once_and_names_the_address() -> Result<()> {
    let instance = Instance::open().await?;
    let body = json!({ "payload": { "a": 1.0 }, "delay": "1h" });
    let answer = send(&instance, &format!("PUT {AT}/order%2F4"), &body).await?;
    assert_eq!(answer.status, 201, "{answer:?}");
    let address = format!("{AT}/~b3JkZXIvNA");
    assert_eq!(answer.header("location"), Some(&*address));
    let created = answer.json()?;
    assert_eq!(
        (&created["id"], &created["outcome"]),
        (&json!("order/4"), &json!("created"))
    );
    // The same call again, by the other spelling.
    let again = send(&instance, &format!("PUT {address}"), &body).await?;
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
async fn put_changes_a_waiting_message_if_asked() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    let replace = json!({ "payload": "new", "delay": "2h", "on_conflict": "replace" });
    let moved = send(&instance, &format!("PUT {AT}/1"), &replace).await?;
    assert_eq!(moved.status, 200, "{moved:?}");
    assert_eq!(moved.json()?["outcome"], "moved");
    assert_eq!(get(&instance, "1").await?["payload"], "new");
    // A handler has it.
    let _ = queue.run_now("1").await?;
    let delivery = queue.claim(1, LEASE).await?.pop().context("a delivery")?;
    let refused = send(&instance, &format!("PUT {AT}/1"), &replace).await?;
    assert_refused!(&refused, 409, "leased");
    assert_eq!(refused.json()?["retryable"], true);
    let kept = send(
        &instance,
        &format!("PUT {AT}/1"),
        &json!({ "payload": "x" }),
    )
    .await?;
    assert_eq!(
        (kept.status, &kept.json()?["state"]),
        (200, &json!("leased"))
    );
    let _ = delivery.bury("why").await?;
    let refused = send(&instance, &format!("PUT {AT}/1"), &replace).await?;
    assert_refused!(refused, 409, "dead");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn put_with_a_window_is_remembered() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    let body = json!({ "payload": "x", "window": "1h" });
    let line = format!("PUT {AT}/once");
    assert_eq!(send(&instance, &line, &body).await?.status, 201);
    for delivery in queue.claim(1, LEASE).await? {
        let _ = delivery.ack().await?;
    }
    let answer = send(&instance, &line, &body).await?;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()?["outcome"], "remembered");
    assert!(answer.json()?["remembered_until_ms"].is_u64());
    let ended = instance.ask(&format!("GET {AT}/once"), &[], "").await?;
    assert_refused!(&ended, 404, "no_such_message");
    assert_eq!(ended.json()?["ended"]["how"], "finished");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn business_hours_use_the_clock_of_redis() -> Result<()> {
    let instance = Instance::open().await?;
    let body =
        json!({ "payload": "x", "delay": "1h", "within": "Mon-Sun 00:00-24:00", "tz": "UTC" });
    let answer = send(&instance, &format!("PUT {AT}/1"), &body).await?;
    let now_ms = instance.client.server_time().await?.now_ms();
    assert_eq!(answer.status, 201, "{answer:?}");
    let due_ms = answer.json()?["due_ms"].as_u64().context("a time")?;
    assert!((now_ms..=now_ms + 3_600_000).contains(&due_ms), "{due_ms}");
    let body = json!({ "within": "Mon-Sun 00:00-24:00", "tz": "UTC" });
    let moved = send(&instance, &format!("PATCH {AT}/1"), &body).await?;
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
async fn hostile_ids_are_refused() -> Result<()> {
    let instance = Instance::open().await?;
    instance.queue("orders").await?;
    let (long, longest) = ("x".repeat(201), "x".repeat(200));
    for id in ["%00", "~AA", "%FF", "~", "%2", &long, "~YQ=="] {
        for (method, body) in [("PUT", "{\"payload\": \"x\"}"), ("GET", ""), ("DELETE", "")] {
            let answer = instance
                .ask(&format!("{method} {AT}/{id}"), &[JSON], body)
                .await?;
            let (status, code) = answer.refusal()?;
            assert!(
                status == 400 && matches!(&*code, "invalid_path" | "invalid_input"),
                "{method} {id}: {answer:?}"
            );
        }
    }
    for id in ["~_w", "%2e%2e", "messages", &longest] {
        let answer = instance
            .ask(&format!("PUT {AT}/{id}"), &[JSON], "{\"payload\": \"x\"}")
            .await?;
        assert_eq!(answer.status, 201, "{id}: {answer:?}");
        let address = answer.header("location").context("an address")?.to_owned();
        let answer = instance.ask(&format!("GET {address}"), &[], "").await?;
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
    let moved = send(&instance, &line, &json!({ "at": "2000000000000" })).await?;
    assert_eq!(
        (moved.status, moved.json()?),
        (
            200,
            json!({ "id": "1", "outcome": "moved", "due_ms": 2_000_000_000_000_u64 })
        )
    );
    let expected = json!({ "at": "2000000000001", "expected_due_ms": 7 });
    let answer = send(&instance, &line, &expected).await?;
    assert_refused!(&answer, 409, "due_changed");
    let expected = json!({ "at": "2000000000001", "expected_due_ms": 2_000_000_000_000_u64 });
    assert_eq!(send(&instance, &line, &expected).await?.status, 200);
    let now = send(&instance, &line, &json!({ "run_now": true })).await?;
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
        assert_refused!(send(&instance, &line, &body).await?, 400, "invalid_input");
    }
    let delivery = queue.claim(1, LEASE).await?.pop().context("a delivery")?;
    let later = json!({ "delay": "1h" });
    assert_refused!(send(&instance, &line, &later).await?, 409, "leased");
    let _ = delivery.bury("why").await?;
    assert_refused!(send(&instance, &line, &later).await?, 409, "dead");
    let now = send(&instance, &line, &json!({ "run_now": true })).await?;
    assert_refused!(now, 409, "dead");
    let absent = send(&instance, &format!("PATCH {AT}/2"), &later).await?;
    assert_refused!(absent, 404, "no_such_message");
    let absent = send(&instance, "PATCH /v1/queues/none/messages/2", &later).await?;
    assert_refused!(absent, 404, "no_such_queue");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn delete_cancels_what_waits() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    let line = format!("DELETE {AT}/1");
    for _ in 0..2 {
        let answer = instance.ask(&line, &[], "").await?;
        let cancelled = answer.json()?;
        assert_eq!(
            (answer.status, &cancelled["outcome"]),
            (200, &json!("cancelled"))
        );
        assert!(cancelled["undo_ms"].is_u64(), "{cancelled}");
    }
    let gone = instance.ask(&format!("GET {AT}/1"), &[], "").await?;
    assert_eq!(gone.json()?["ended"]["how"], "cancelled", "{gone:?}");
    let absent = instance.ask(&format!("DELETE {AT}/2"), &[], "").await?;
    assert_refused!(&absent, 404, "no_such_message");
    assert!(absent.json()?["ended"].is_null());
    let message = Message::new("x").id("2").on_conflict(OnConflict::Replace);
    queue.push_message(message).await?;
    let delivery = queue.claim(1, LEASE).await?.pop().context("a delivery")?;
    let line = format!("DELETE {AT}/2");
    assert_refused!(instance.ask(&line, &[], "").await?, 409, "leased");
    let _ = delivery.bury("why").await?;
    assert_refused!(instance.ask(&line, &[], "").await?, 409, "dead");
    let answer = instance.ask(&format!("{line}?dead=true"), &[], "").await?;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_refused!(
        instance
            .ask(&format!("{line}?dead=perhaps"), &[], "")
            .await?,
        400,
        "invalid_input"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn requeue_revives_a_dead_message_on_record() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    let line = format!("POST {AT}/1/requeue");
    assert_refused!(instance.ask(&line, &[], "").await?, 409, "not_dead");
    let _ = queue.run_now("1").await?;
    for delivery in queue.claim(1, LEASE).await? {
        let _ = delivery.bury("first\nsecond").await?;
    }
    let dead = get(&instance, "1").await?;
    assert_eq!(
        (&dead["state"], &dead["error"]),
        (&json!("dead"), &json!("first\nsecond"))
    );
    assert!(dead["died_ms"].is_u64(), "{dead}");
    let answer = instance.ask(&line, &[], "").await?;
    assert_eq!(
        (answer.status, answer.json()?),
        (200, json!({ "id": "1", "outcome": "requeued" }))
    );
    assert_refused!(
        instance
            .ask(&format!("POST {AT}/2/requeue"), &[], "")
            .await?,
        404,
        "no_such_message"
    );
    assert_eq!(instance.audit()?.len(), 6);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_say_whether_they_applied_without_redis() -> Result<()> {
    let mut instance = Instance::open().await?;
    instance.queue("orders").await?;
    instance.redis.kill()?;
    let at = format!("{AT}/1");
    let body = "{\"payload\": \"x\"}";
    let call = async |method: &str, rest: &str, body: &str| {
        let line = format!("{method} {at}{rest}");
        instance.ask(&line, &[JSON], body).await
    };
    let (put, read, payload, patch, delete) = tokio::join!(
        call("PUT", "", body),
        call("GET", "", ""),
        call("GET", "/payload", ""),
        call("PATCH", "", "{\"run_now\": true}"),
        call("DELETE", "", ""),
    );
    for answer in [put?, read?, payload?, patch?, delete?] {
        assert!(matches!(answer.status, 503 | 504), "{answer:?}");
        answer.code()?;
        assert_eq!(answer.json()?["retryable"], true, "{answer:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn full_queue_and_full_redis_are_507() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    queue
        .configure(dueq::Limits::new().max_messages(Some(1)))
        .await?;
    let body = json!({ "payload": "x" });
    let answer = send(&instance, &format!("PUT {AT}/2"), &body).await?;
    assert_refused!(&answer, 507, "full");
    assert_eq!(answer.json()?["applied"], "no");
    instance
        .redis
        .command(&["CONFIG", "SET", "maxmemory", "1"])?;
    let answer = send(&instance, "PUT /v1/queues/mail/messages/2", &body).await?;
    assert_refused!(&answer, 507, "full");
    assert_eq!(answer.json()?["applied"], "no");
    Ok(())
}

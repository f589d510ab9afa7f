//! Settlements that are refused, and the deliveries that they leave unchanged.

use anyhow::Result;
use dueq::MessageState;
use serde_json::json;

use super::{JSON, SETTLE, claimed, handle, results, settle};
use crate::instance::Instance;
use crate::{assert_has, assert_refused};

#[tokio::test(flavor = "multi_thread")]
async fn wrong_items_do_not_prevent_the_other_settlements() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let all = claimed(&queue, &["1", "2", "3"]).await?;
    let [one, other, third] = [&all[0], &all[1], &all[2]].map(handle);
    let long = "a".repeat(1 << 20);
    let mut forged = other.clone();
    forged.pop();
    let wrong = [
        json!({ "action": "ack" }),
        json!({ "handle": other }),
        json!({ "handle": "", "action": "ack" }),
        json!({ "handle": long, "action": "ack" }),
        json!({ "handle": forged, "action": "ack" }),
        json!({ "handle": other.to_uppercase(), "action": "ack" }),
        json!({ "handle": 5, "action": "ack" }),
        json!({ "handle": other, "action": "acknowledge" }),
        json!({ "handle": other, "action": "ack", "delay": "1h" }),
        json!({ "handle": other, "action": "ack", "error": "x" }),
        json!({ "handle": other, "action": "release", "push": [] }),
        json!({ "handle": other, "action": "bury", "for_ms": 5 }),
        json!({ "handle": other, "action": "retry" }),
        json!({ "handle": other, "action": "retry", "delay": "-1h" }),
        json!({ "handle": other, "action": "retry", "delay": "1h", "at": "0" }),
        json!({ "handle": other, "action": "snooze", "at": "NaN" }),
        json!({ "handle": other, "action": "again", "delay": 5 }),
        json!({ "handle": other, "action": "throttle" }),
        json!({ "handle": other, "action": "throttle", "for_ms": 0 }),
        json!({ "handle": other, "action": "ack", "push": [{ "payload": 5, "id": "" }] }),
        json!({ "handle": other, "action": "ack", "push": [{ "payload": "x", "dealy": "1h" }] }),
        json!({ "handle": other, "action": "ack", "extra": 1 }),
        json!([other, "ack"]),
        json!("ack"),
        json!(null),
    ];
    let mut items = vec![json!({ "handle": one, "action": "ack" })];
    items.extend(wrong.iter().cloned());
    items.push(json!({ "handle": one, "action": "release" }));
    items.push(json!({ "handle": third, "action": "ack" }));
    let (counts, results) = settle(&instance, json!(items)).await?;
    assert_has!(counts, { "done": 2, "refused": wrong.len() + 1, "failed": 0 });
    for (item, result) in wrong.iter().zip(&results[1..]) {
        assert_eq!(result["outcome"], "refused", "{item}: {result}");
        assert_eq!(result["code"], "invalid_input", "{item}: {result}");
        let detail = result["detail"].as_str().unwrap_or_default();
        assert!(!detail.is_empty() && detail.len() < 2_000, "{detail}");
        // No problem quotes a handle: whoever has one can settle the delivery.
        assert!(!detail.contains(&other[2..34]), "{detail}");
    }
    assert_eq!(
        queue.get("2").await?.map(|stored| stored.state),
        Some(MessageState::Leased)
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn handle_of_another_queue_settles_nothing() -> Result<()> {
    let instance = Instance::open().await?;
    let (orders, mails) = (
        instance.client.queue("orders")?,
        instance.client.queue("mails")?,
    );
    let own = claimed(&orders, &["1"]).await?;
    let foreign = claimed(&mails, &["1", "2"]).await?;
    // One item names the id of another queue's message, the other an id that this queue does not
    // have.
    let items = foreign
        .iter()
        .map(|delivery| json!({ "handle": handle(delivery), "action": "ack" }));
    let (counts, results) = settle(&instance, json!(items.collect::<Vec<_>>())).await?;
    assert_eq!(counts["lost"], 2, "{counts}");
    assert_eq!(
        (&results[0]["outcome"], &results[1]["outcome"]),
        (&json!("lost"), &json!("gone"))
    );
    for (queue, leased) in [(&orders, 1), (&mails, 2)] {
        assert_eq!(queue.stats().await?.leased, leased);
    }
    assert_eq!(own[0].ack().await?, dueq::outcomes::SettleOutcome::Done);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_requests_settle_nothing() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let all = claimed(&queue, &["1"]).await?;
    let item = json!({ "handle": handle(&all[0]), "action": "ack" }).to_string();
    let many = vec!["1"; 1_001].join(",");
    for (body, code) in [
        ("{}".to_owned(), "invalid_input"),
        (format!("[{item}]"), "invalid_input"),
        (item.clone(), "invalid_input"),
        (format!("{{\"settlements\": {item}}}"), "invalid_input"),
        (
            format!("{{\"settlements\": [{item}], \"extensions\": []}}"),
            "invalid_input",
        ),
        (
            format!("{{\"settlements\": [{item}], \"settlements\": [{item}]}}"),
            "invalid_input",
        ),
        (format!("{{\"extensions\": [{item}]}}"), "invalid_input"),
        (format!("{{\"settlements\": [{many}]}}"), "invalid_input"),
        // The list is parsed up to the first item beyond the limit.
        (format!("{{\"settlements\": [{many}"), "invalid_input"),
        (format!("{{\"settlements\": [{item}"), "bad_request"),
        (format!("{{\"settlements\": [{item}, NaN]}}"), "bad_request"),
    ] {
        let answer = instance.ask(SETTLE, &[JSON], &body).await?;
        let shown: String = body.chars().take(60).collect();
        assert_eq!(
            (answer.status, &*answer.code()?),
            (400, code),
            "{shown}: {answer:?}"
        );
    }
    assert_refused!(
        instance
            .ask(SETTLE, &["Content-Type: text/plain"], &item)
            .await?,
        415,
        "unsupported_media_type"
    );
    assert_eq!(queue.stats().await?.leased, 1);
    let (counts, _) = settle(&instance, json!([])).await?;
    assert_eq!(counts["results"], json!([]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn consumer_without_the_right_to_push_pushes_nothing() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let queue = instance.client.queue("orders")?;
    let all = claimed(&queue, &["1"]).await?;
    let body = json!({ "settlements": [
        { "handle": handle(&all[0]), "action": "ack", "push": [{ "payload": "x" }] },
    ]});
    let answer = instance
        .ask_as("consumer", SETTLE, &body.to_string())
        .await?;
    let (_, refused) = results(&answer)?;
    assert_eq!(
        (&refused[0]["outcome"], &refused[0]["code"]),
        (&json!("refused"), &json!("forbidden"))
    );
    assert_eq!(queue.stats().await?.pushed, 1);
    let answer = instance
        .ask_as("operator", SETTLE, &body.to_string())
        .await?;
    assert_eq!(results(&answer)?.0["done"], 1, "{answer:?}");
    assert_eq!(queue.stats().await?.pushed, 2);
    Ok(())
}

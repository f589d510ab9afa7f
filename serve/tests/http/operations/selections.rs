//! Operations on all messages that match a filter.

use anyhow::{Context, Result};
use dueq::{Message, MessageState, Queue};
use serde_json::{Value, json};

use super::{AT, begun, bury_as, depths, ended, push, run, scheduled, until};
use crate::instance::{Answer, Instance, JSON};
use crate::{assert_has, assert_refused};

const ERRORS: [&str; 2] = ["bank: Timeout after 5 s\nat line 3", "refused"];

/// The ids in one state, sorted.
async fn ids(queue: &Queue, state: MessageState) -> Result<Vec<String>> {
    let messages = queue.list(state, None, 1_000).await?.messages;
    let mut ids: Vec<_> = messages
        .iter()
        .map(|message| String::from_utf8_lossy(&message.id).into_owned())
        .collect();
    ids.sort();
    Ok(ids)
}

async fn file_of(instance: &Instance, operation: &Value) -> Result<Answer> {
    let href = operation["cancelled_href"].as_str().context("a file")?;
    instance.call(&format!("GET {href}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn requeue_and_purge_take_what_matches_the_filter() -> Result<()> {
    for partitions in [1, 3] {
        let instance = Instance::open().await?;
        let queue = instance.client.queue("orders")?;
        if partitions > 1 {
            queue.partition_into(partitions).await?;
        }
        push(&queue, "old-", 300).await?;
        bury_as(&queue, 300, &ERRORS).await?;
        let dry = json!({ "kind": "requeue", "error_text": "TIMEOUT", "dry_run": true });
        assert_has!(run(&instance, dry).await?, { "done": 150, "of": 150 });
        let one = json!({ "kind": "requeue", "error_text": "timeout", "limit": 1 });
        assert_has!(run(&instance, one).await?, { "state": "done", "done": 1, "limit": 1 });
        let rest = json!({ "kind": "requeue", "error_text": "timeout", "pace": 100_000 });
        let end = run(&instance, rest).await?;
        assert_has!(end, { "state": "done", "done": 149, "error_text": "timeout" });
        let none = json!({ "kind": "purge", "state": "dead", "min_crashes": 1 });
        let (address, _) = begun(&instance, none).await?;
        assert_has!(ended(&instance, &address).await?, { "state": "done", "done": 0 });
        let file = instance.call(&format!("GET {address}/cancelled")).await?;
        assert!(file.status == 200 && !file.body.contains('{'), "{file:?}");
        let refused =
            json!({ "kind": "purge", "state": "dead", "error_text": "fuse", "pace": 100_000 });
        assert_has!(run(&instance, refused).await?, { "state": "done", "done": 150 });
        let [waiting, ready, _, dead] = depths(&queue).await?;
        assert_eq!((waiting + ready, dead), (150, 0));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_of_a_state_writes_a_file_that_pushes_again() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let due_ms = scheduled(&queue, 250).await?;
    let due = dueq::Due::at_ms(due_ms + 5_000);
    let message = Message::new([0xff_u8])
        .id("binary")
        .due(due)
        .max_attempts(7);
    queue
        .push_message(message.expires_after(std::time::Duration::from_secs(9)))
        .await?;
    let body = json!({ "kind": "cancel", "state": "scheduled", "pace": 100_000 });
    let end = run(&instance, body).await?;
    assert_has!(end, { "state": "done", "done": 251, "of": 251, "messages": "scheduled" });
    assert_eq!(depths(&queue).await?, [0, 0, 0, 0]);
    let file = file_of(&instance, &end).await?;
    assert_eq!(file.status, 200, "{file:?}");
    assert_eq!(file.header("content-type"), Some("application/x-ndjson"));
    let line = file.body.lines().find(|line| line.contains("binary"));
    let line: Value = serde_json::from_str(line.context("a line")?)?;
    assert_has!(line, { "id": "binary", "payload_base64": "/w==", "max_attempts": 7, "expires": "9000ms" });
    let push = "POST /v1/queues/orders/messages";
    let lines = "Content-Type: application/x-ndjson";
    // A queue remembers a cancel, and the push of a file is no repetition of an earlier push.
    let again = instance.ask(push, &[lines], &file.body).await?.json()?;
    assert_eq!(again["created"], 251, "{again}");
    assert_eq!(depths(&queue).await?, [251, 0, 0, 0]);
    let back = queue.get("binary").await?.context("the message")?;
    assert_eq!((back.payload, back.time_ms), (vec![0xff], due_ms + 5_000));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_of_ready_messages_takes_each_while_others_go() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    push(&queue, "first-", 1).await?;
    // A claim makes the server attend the queue, and so promote due messages.
    let claim = instance.ask("POST /v1/queues/orders/claims", &[JSON], "{}");
    assert_eq!(claim.await?.status, 200);
    push(&queue, "due-", 400).await?;
    while queue.stats().await?.ready < 400 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let body = json!({ "kind": "cancel", "state": "ready", "pace": 100_000 });
    let end = run(&instance, body).await?;
    assert_has!(end, { "state": "done", "done": 400 });
    assert_eq!(depths(&queue).await?, [0, 0, 1, 0]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_ends_although_messages_are_pushed_ahead() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    scheduled(&queue, 50).await?;
    let body = json!({ "kind": "cancel", "state": "scheduled", "pace": 20 });
    let (address, _) = begun(&instance, body).await?;
    until(&instance, &address, |shown| {
        shown["done"].as_u64() > Some(5)
    })
    .await?;
    // More than were there, and all of them later than what the operation reads next.
    let message = |number: u64| {
        let due = dueq::Due::at_ms(4_100_000_000_000 + number);
        Message::new("x").id(format!("new-{number}")).due(due)
    };
    for receipt in queue.push_many((0..500).map(message)).await {
        receipt?;
    }
    let end = ended(&instance, &address).await?;
    assert_has!(end, { "state": "done", "done": 50 });
    assert_eq!(depths(&queue).await?, [500, 0, 0, 0]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_stops_when_its_file_has_no_room() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let limits = dueq::QueueLimits::new().max_payload_bytes(16 << 20);
    queue.configure(limits).await?;
    let payload = vec![b'x'; 15 << 20];
    for number in 0..4_u64 {
        let due = dueq::Due::at_ms(4_000_000_000_000 + number);
        let message = Message::new(payload.clone())
            .id(number.to_string())
            .due(due);
        queue.push_message(message).await?;
    }
    let body = json!({ "kind": "cancel", "state": "scheduled", "pace": 1 });
    let end = run(&instance, body.clone()).await?;
    assert_has!(end, { "state": "stopped", "done": 3 });
    assert!(
        end["reason"]
            .as_str()
            .is_some_and(|why| why.contains("64 MiB")),
        "{end}"
    );
    assert_eq!(ids(&queue, MessageState::Scheduled).await?, ["3"]);
    // The next operation drops the file of the one that has ended.
    assert_has!(run(&instance, body).await?, { "state": "done", "done": 1 });
    let href = end["cancelled_href"].as_str().context("a file")?;
    let gone = instance.call(&format!("GET {href}")).await?;
    assert_refused!(&gone, 404, "no_such_operation", "{href}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn file_needs_the_right_to_read_payloads() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let queue = instance.client.queue("orders")?;
    scheduled(&queue, 3).await?;
    let body = json!({ "kind": "cancel", "state": "scheduled" }).to_string();
    let begun = instance
        .ask_as("operator", &format!("POST {AT}"), &body)
        .await?;
    assert_eq!(begun.status, 202, "{begun:?}");
    let id = begun.json()?["id"].as_str().context("an id")?.to_owned();
    let line = format!("GET {AT}/{id}/cancelled");
    for role in ["viewer", "producer"] {
        assert_eq!(
            instance.ask_as(role, &line, "").await?.status,
            403,
            "{role}"
        );
    }
    Ok(())
}

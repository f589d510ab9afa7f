//! Requests that push many messages.

use anyhow::{Context, Result};
use dueq::{MessageState, QueueLimits};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::instance::{Answer, Instance, JSON, to_end};
use crate::{assert_has, assert_refused};

const POST: &str = "POST /v1/queues/orders/messages";
const LINES: &str = "Content-Type: application/x-ndjson";
const KEY: &str = "Idempotency-Key: nightly";

#[tokio::test(flavor = "multi_thread")]
async fn post_of_one_message_returns_its_address() -> Result<()> {
    let instance = Instance::open().await?;
    let body = "{\"payload\": \"x\", \"delay\": \"1h\"}";
    let answer = instance.ask(POST, &[JSON], body).await?;
    assert_eq!(answer.status, 201, "{answer:?}");
    let address = answer.header("location").context("an address")?;
    let read = instance.call(&format!("GET {address}")).await?;
    assert_eq!(read.json()?["id"], answer.json()?["id"]);
    // With an idempotency key the second call finds the message of the first.
    for status in [201, 200] {
        let answer = instance.ask(POST, &[JSON, KEY], body).await?;
        assert_eq!(answer.status, status, "{answer:?}");
    }
    assert_eq!(instance.client.queue("orders")?.stats().await?.pushed, 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn key_prevents_a_second_message_after_the_first_ended() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let body = "{\"payload\": \"x\"}";
    assert_eq!(instance.ask(POST, &[JSON, KEY], body).await?.status, 201);
    for delivery in queue.claim(1, std::time::Duration::from_secs(60)).await? {
        let _ = delivery.ack().await?;
    }
    let again = instance.ask(POST, &[JSON, KEY], body).await?;
    assert_eq!(
        (again.status, &again.json()?["outcome"]),
        (200, &json!("remembered"))
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn list_of_messages_has_a_result_for_each() -> Result<()> {
    let instance = Instance::open().await?;
    instance.queue("orders").await?;
    let body = json!({ "messages": [
        { "payload": "a", "id": "a", "delay": "1h" },
        { "payload": "b", "dealy": "1h" },
        { "payload": "c", "id": "1" },
        { "payload": "d" },
        { "payload": "e", "id": "" },
    ] });
    let answer = instance.ask(POST, &[JSON], &body.to_string()).await?;
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json()?;
    let counts = [
        "lines_done",
        "created",
        "existed",
        "changed",
        "refused",
        "failed",
    ];
    let counts = counts.map(|name| answer[name].as_u64());
    assert_eq!(counts, [5, 2, 1, 0, 2, 0].map(Some), "{answer}");
    let word = |result: &Value| {
        let word = if result["code"].is_null() {
            "outcome"
        } else {
            "code"
        };
        result[word].as_str().unwrap_or_default().to_owned()
    };
    let results: Vec<_> = answer["results"]
        .as_array()
        .context("results")?
        .iter()
        .map(word)
        .collect();
    let expected = [
        "created",
        "invalid_input",
        "exists",
        "created",
        "invalid_input",
    ];
    assert_eq!(results, expected, "{answer}");
    assert_eq!(answer["refusals"][0]["line"], 2, "{answer}");
    for (body, code) in [
        ("[]", "invalid_input"),
        ("7", "invalid_input"),
        ("{\"messages\": 7}", "invalid_input"),
        ("{\"messages\": [], \"x\": 1}", "invalid_input"),
        ("{\"messages\": [], \"messages\": []}", "invalid_input"),
        ("{\"messages\": [", "bad_request"),
        ("{\"messages\": [NaN]}", "bad_request"),
        ("", "bad_request"),
        (
            &*json!({ "messages": vec![1; 1_001] }).to_string(),
            "invalid_input",
        ),
    ] {
        let answer = instance.ask(POST, &[JSON], body).await?;
        let shown: String = body.chars().take(40).collect();
        assert_eq!(
            answer.refusal()?,
            (400, code.to_owned()),
            "{shown}: {answer:?}"
        );
    }
    assert_refused!(
        instance.ask(POST, &["Content-Type: text/csv"], "x").await?,
        415,
        "unsupported_media_type"
    );
    for keys in [&["Idempotency-Key: a b"][..], &[KEY, KEY]] {
        let headers = [&[JSON], keys].concat();
        let answer = instance.ask(POST, &headers, "{\"payload\": \"x\"}").await?;
        assert_eq!(answer.status, 400, "{answer:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_lines_are_reported_by_line_number() -> Result<()> {
    let instance = Instance::open().await?;
    let mut body = "{\"payload\": \"x\"}\n\n{\n".to_owned();
    body.push_str(&"{}\n".repeat(120));
    body.push_str("{\"payload\": \"x\", \"id\": \"last\"}");
    let answer = instance.ask(POST, &[LINES], &body).await?;
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json()?;
    assert_has!(answer, { "created": 2, "refused": 121 });
    assert_eq!(answer["lines_done"], 124, "{answer}");
    let refusals = answer["refusals"].as_array().context("refusals")?;
    assert_eq!(refusals.len(), 100);
    assert_eq!(
        (&refusals[0]["line"], &refusals[0]["code"]),
        (&json!(3), &json!("bad_request"))
    );
    assert_eq!(
        (&refusals[1]["line"], &refusals[1]["code"]),
        (&json!(4), &json!("invalid_input"))
    );
    assert!(
        instance
            .client
            .queue("orders")?
            .get("last")
            .await?
            .is_some()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn full_queue_ends_the_push_and_reports_lines_done() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    queue
        .configure(QueueLimits::new().max_messages(Some(3)))
        .await?;
    let answer = instance
        .ask(POST, &[LINES], &"{\"payload\": \"x\"}\n".repeat(9))
        .await?;
    assert_refused!(&answer, 507, "full");
    let problem = answer.json()?;
    assert_eq!(
        (&problem["applied"], &problem["pushed"]["created"]),
        (&json!("yes"), &json!(2))
    );
    assert_eq!(problem["pushed"]["lines_done"], 2, "{problem}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn line_that_was_cut_off_is_not_pushed() -> Result<()> {
    let instance = Instance::open().await?;
    let mut stream = instance.connect().await?;
    let head = format!(
        "{POST} HTTP/1.1\r\nHost: {}\r\n{LINES}\r\nContent-Length: 1000\r\n\r\n",
        instance.address
    );
    let lines = "{\"payload\": \"x\", \"id\": \"a\"}\n{\"payload\": \"x\", \"id\": \"b\"}";
    stream
        .write_all(format!("{head}{lines}").as_bytes())
        .await?;
    stream.shutdown().await?;
    let text = to_end(&mut stream).await?;
    if !text.is_empty() {
        let problem = Answer::parse(&text)?;
        assert_eq!(problem.json()?["applied"], "yes", "{problem:?}");
        assert_eq!(problem.json()?["pushed"]["lines_done"], 1, "{problem:?}");
    }
    let queue = instance.client.queue("orders")?;
    assert!(queue.get("a").await?.is_some() && queue.get("b").await?.is_none());
    Ok(())
}

/// The number of lines in the test below.
const MANY: usize = 3_000;

#[tokio::test(flavor = "multi_thread")]
async fn repeated_upload_stores_each_line_once() -> Result<()> {
    let instance = Instance::open().await?;
    let body: String = (0..MANY)
        .map(|n| format!("{{\"payload\": \"{n}\", \"delay\": \"24h\"}}\n"))
        .collect();
    let head = format!(
        "{POST} HTTP/1.1\r\nHost: {}\r\n{LINES}\r\n{KEY}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        instance.address,
        body.len()
    );
    for _ in 0..3 {
        let mut random = [0; 8];
        getrandom::fill(&mut random)?;
        let cut = usize::try_from(u64::from_le_bytes(random) % body.len() as u64)?;
        let mut stream = instance.connect().await?;
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&body.as_bytes()[..cut]).await?;
        drop(stream);
    }
    let answer = instance.raw(format!("{head}{body}").as_bytes()).await?;
    assert_eq!(answer.status, 200, "{answer:?}");
    let counts = answer.json()?;
    let total = counts["created"].as_u64().zip(counts["existed"].as_u64());
    assert_eq!(
        total.map(|(new, old)| new + old),
        Some(MANY as u64),
        "{counts}"
    );
    assert_eq!(counts["lines_done"], MANY, "{counts}");
    let queue = instance.client.queue("orders")?;
    let (mut cursor, mut payloads) = (None, Vec::new());
    loop {
        let page = queue
            .list(MessageState::Scheduled, cursor.as_ref(), 1_000)
            .await?;
        payloads.extend(page.messages.into_iter().map(|message| message.id));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    payloads.sort();
    payloads.dedup();
    assert_eq!(payloads.len(), MANY);
    let stats = queue.stats().await?;
    assert_eq!((stats.scheduled, stats.pushed), (MANY as u64, MANY as u64));
    let number = payloads.iter().position(|id| id.ends_with(b":0000000007"));
    assert_eq!(number, Some(6));
    assert_eq!(
        queue.get(&payloads[6]).await?.context("a message")?.payload,
        b"6"
    );
    Ok(())
}

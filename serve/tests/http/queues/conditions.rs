//! Conditional requests and other parts of HTTP.

use anyhow::{Context, Result};
use serde_json::json;

use crate::instance::Instance;
use crate::{assert_has, assert_refused};

#[tokio::test(flavor = "multi_thread")]
async fn entity_tag_of_a_queue_makes_reads_conditional() -> Result<()> {
    let instance = Instance::open().await?;
    let _queue = instance.queue("orders").await?;
    let read = instance.call("GET /v1/queues/orders").await?;
    let tag = read.header("etag").context("a tag")?.to_owned();
    for known in [
        tag.clone(),
        format!("W/{tag}"),
        "*".to_owned(),
        format!("\"x\", {tag}"),
    ] {
        let header = format!("If-None-Match: {known}");
        let answer = instance
            .ask("GET /v1/queues/orders", &[&header], "")
            .await?;
        assert_eq!((answer.status, &*answer.body), (304, ""), "{header}");
        assert_eq!(answer.header("etag"), Some(&*tag));
    }
    let other = instance
        .ask("GET /v1/queues/orders", &["If-None-Match: \"x\""], "")
        .await?;
    assert_eq!(other.status, 200, "{other:?}");
    let line = "DELETE /v1/queues/orders";
    assert_refused!(
        instance
            .ask(line, &[&format!("If-Match: W/{tag}")], "")
            .await?,
        412,
        "queue_changed"
    );
    assert_eq!(instance.ask(line, &["If-Match: *"], "").await?.status, 200);
    assert_refused!(
        instance.ask(line, &["If-Match: *"], "").await?,
        404,
        "no_such_queue"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn push_with_if_none_match_changes_no_existing_message() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let (json, new) = ("Content-Type: application/json", "If-None-Match: *");
    let line = "PUT /v1/queues/orders/messages/a";
    let push = |body: &'static str, headers: Vec<&'static str>| {
        instance.ask(line, &headers.leak()[..], body)
    };
    assert_eq!(
        push("{\"payload\": \"x\", \"delay\": \"1h\"}", vec![json, new])
            .await?
            .status,
        201
    );
    assert_refused!(
        push("{\"payload\": \"y\", \"delay\": \"2h\"}", vec![json, new]).await?,
        412,
        "exists"
    );
    let replacing = "{\"payload\": \"y\", \"on_conflict\": \"replace\"}";
    assert_refused!(
        push(replacing, vec![json, new]).await?,
        400,
        "invalid_input"
    );
    // A message has no entity tag, so no tag in the header fits.
    assert_eq!(
        push("{\"payload\": \"y\"}", vec![json, "If-None-Match: \"x\""])
            .await?
            .status,
        200
    );
    assert_eq!(queue.get("a").await?.context("a message")?.payload, b"x");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn openapi_document_is_compressed_like_pages() -> Result<()> {
    let instance = Instance::open().await?;
    let plain = instance.call("GET /openapi.json").await?;
    let packed = instance
        .ask("GET /openapi.json", &["Accept-Encoding: gzip"], "")
        .await?;
    assert_eq!((plain.status, packed.status), (200, 200));
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert_eq!(plain.header("content-encoding"), None);
    assert!(plain.body.len() > 100_000);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn payload_above_the_limit_is_too_large() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    queue
        .configure(dueq::QueueLimits::new().max_payload_bytes(1_000))
        .await?;
    let json = "Content-Type: application/json";
    for bytes in [1_001, 17 << 20] {
        let payload = "x".repeat(bytes);
        let one = json!({ "payload": payload }).to_string();
        for line in [
            "POST /v1/queues/orders/messages",
            "PUT /v1/queues/orders/messages/a",
        ] {
            assert_refused!(instance.ask(line, &[json], &one).await?, 413, "too_large");
        }
        let line = "POST /v1/queues/orders/messages";
        let many = json!({ "messages": [{ "payload": payload }, { "payload": "x" }] }).to_string();
        let lines = format!("{one}\n{{\"payload\": \"x\"}}\n");
        for (media, body) in [(json, many), ("Content-Type: application/x-ndjson", lines)] {
            let answer = instance.ask(line, &[media], &body).await?.json()?;
            assert_has!(answer, { "refused": 1, "created": 1 });
            assert_eq!(answer["refusals"][0]["code"], "too_large", "{answer}");
        }
    }
    Ok(())
}

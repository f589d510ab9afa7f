//! Payloads of messages: truncated, withheld, downloaded.

use anyhow::Result;
use dueq::Message;

use crate::instance::Instance;
use crate::{assert_has, assert_refused};

const AT: &str = "/v1/queues/orders/messages";

#[tokio::test(flavor = "multi_thread")]
async fn payload_is_truncated_and_withheld_by_role() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let queue = instance.client.queue("orders")?;
    queue
        .push_message(Message::new("\u{e4}".repeat(50_000)).id("1"))
        .await?;
    let read = async |role: &str, query: &str| {
        let line = format!("GET {AT}/1{query}");
        instance.ask_as(role, &line, "").await
    };
    let whole = read("consumer", "?payload_bytes=16777216").await?.json()?;
    assert_eq!(whole["payload"].as_str().map(str::len), Some(100_000));
    assert_eq!(whole["payload_truncated"], false);
    let cut = read("operator", "").await?.json()?;
    assert_eq!(cut["payload"].as_str().map(str::len), Some(65_536));
    assert_has!(cut, { "payload_bytes": 100_000, "payload_truncated": true });
    let cut = read("operator", "?payload_bytes=3").await?.json()?;
    assert_eq!(cut["payload"], "\u{e4}");
    for role in ["viewer", "producer"] {
        let answer = read(role, "?payload_bytes=3").await?.json()?;
        assert_eq!(answer["payload_withheld"], true, "{answer}");
        assert_eq!(answer["payload_bytes"], 100_000, "{answer}");
        assert!(
            answer["payload"].is_null() && answer["payload_base64"].is_null(),
            "{answer}"
        );
    }
    for query in [
        "?payload_bytes=16777217",
        "?payload_bytes=-1",
        "?payload_bytes=1e3",
        "?bytes=3",
    ] {
        let answer = read("operator", query).await?;
        assert_eq!(answer.status, 400, "{query}: {answer:?}");
        answer.code()?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn payload_is_downloaded_as_a_sandboxed_attachment() -> Result<()> {
    let instance = Instance::with_tokens_and(|config| config.max_body_bytes = 64).await?;
    let queue = instance.client.queue("orders")?;
    let html = "<script>alert(1)</script>";
    queue.push_message(Message::new(html).id("1")).await?;
    queue
        .push_message(Message::new(vec![0; 65]).id("2"))
        .await?;
    let line = format!("GET {AT}/1/payload");
    for _ in 0..4 {
        let answer = instance.ask_as("consumer", &line, "").await?;
        assert_eq!((answer.status, &*answer.body), (200, html), "{answer:?}");
        for (name, value) in [
            ("content-type", "application/octet-stream"),
            ("content-disposition", "attachment"),
            (
                "content-security-policy",
                "sandbox; default-src 'none'; frame-ancestors 'none'",
            ),
            ("x-content-type-options", "nosniff"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{answer:?}");
        }
    }
    assert_refused!(
        instance.ask_as("producer", &line, "").await?,
        403,
        "forbidden"
    );
    let line = format!("GET {AT}/2/payload");
    assert_refused!(
        instance.ask_as("consumer", &line, "").await?,
        503,
        "bodies_full"
    );
    let line = format!("GET {AT}/3/payload");
    assert_refused!(
        instance.ask_as("consumer", &line, "").await?,
        404,
        "no_such_message"
    );
    Ok(())
}

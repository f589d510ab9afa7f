//! An `Idempotency-Key` that is reused with another body.

use anyhow::Result;
use serde_json::json;

use crate::instance::Instance;
use crate::{assert_has, assert_refused};

#[tokio::test(flavor = "multi_thread")]
async fn idempotency_key_with_another_body_is_refused() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let (json, lines) = (
        "Content-Type: application/json",
        "Content-Type: application/x-ndjson",
    );
    let line = "POST /v1/queues/orders/messages";
    let instance = &instance;
    let post = async |media: &'static str, key: &str, body: String| {
        let key = format!("Idempotency-Key: {key}");
        instance.ask(line, &[media, &key], &body).await
    };
    let one = |payload: &str| json!({ "payload": payload, "delay": "1h" }).to_string();
    assert_eq!(post(json, "one", one("abc")).await?.status, 201);
    assert_eq!(post(json, "one", one("abc")).await?.status, 200);
    for other in ["abd", "abcd", "ab", ""] {
        assert_refused!(
            post(json, "one", one(other)).await?,
            422,
            "other_body",
            "{other}"
        );
    }
    let many = |third: &str| {
        let all = ["a", "b", third].map(|payload| json!({ "payload": payload, "delay": "1h" }));
        json!({ "messages": all }).to_string()
    };
    let rows = |third: &str| ["a", "b", third].map(&one).join("\n");
    for (media, key, same, other) in [
        (json, "many", many("c"), many("d")),
        (lines, "lines", rows("c"), rows("d")),
    ] {
        assert_eq!(post(media, key, same.clone()).await?.json()?["created"], 3);
        assert_eq!(post(media, key, same).await?.json()?["existed"], 3);
        let answer = post(media, key, other).await?.json()?;
        assert_has!(answer, { "existed": 2, "refused": 1 });
        assert_eq!(answer["refusals"][0]["code"], "other_body", "{answer}");
        assert_eq!(answer["refusals"][0]["line"], 3, "{answer}");
    }
    assert_eq!(queue.stats().await?.pushed, 7);
    Ok(())
}

/// A first call with a key makes no further call of Redis: only a push that finds a message reads
/// it.
#[tokio::test(flavor = "multi_thread")]
async fn first_push_with_a_key_reads_no_message() -> Result<()> {
    let instance = Instance::open().await?;
    let _queue = instance.queue("orders").await?;
    let calls = || {
        let info = instance.redis.command(&["info", "commandstats"])?;
        let evals = info
            .lines()
            .filter(|line| line.starts_with("cmdstat_evalsha:"));
        let calls = evals.filter_map(|line| {
            line.split("calls=")
                .nth(1)?
                .split(',')
                .next()?
                .parse::<u64>()
                .ok()
        });
        Ok::<u64, anyhow::Error>(calls.sum())
    };
    let json = "Content-Type: application/json";
    let line = "POST /v1/queues/orders/messages";
    let before = calls()?;
    let answer = instance
        .ask(
            line,
            &[json, "Idempotency-Key: k"],
            "{\"payload\": \"x\", \"delay\": \"1h\"}",
        )
        .await?;
    assert_eq!(answer.status, 201);
    assert_eq!(calls()? - before, 1);
    Ok(())
}

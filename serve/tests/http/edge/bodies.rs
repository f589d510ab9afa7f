//! Request bodies: broken, too large, slow, or together larger than the memory for bodies.

use anyhow::Result;
use tokio::io::AsyncWriteExt;

use crate::assert_refused;
use crate::instance::{Answer, Instance, JSON, to_end};

const PAUSE: &str = "PUT /v1/queues/orders/pause";

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bodies_are_refused_and_change_nothing() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    let nested = format!("{}1", "[".repeat(100_000));
    for (body, code) in [
        ("{", "bad_request"),
        ("{\"for_ms\":", "bad_request"),
        ("{\"for_ms\": 1e400}", "invalid_input"),
        ("{\"for_ms\": NaN}", "bad_request"),
        ("\u{0}", "bad_request"),
        (&*nested, "invalid_input"),
        ("[]", "invalid_input"),
        (" [60000]", "invalid_input"),
        ("{} {}", "bad_request"),
        ("\"for_ms\"", "invalid_input"),
        ("{\"for_ms\": -5}", "invalid_input"),
        ("{\"for_ms\": 1.5}", "invalid_input"),
        ("{\"for_ms\": \"5\"}", "invalid_input"),
        ("{\"for_ms\": 5, \"for_ms\": 6}", "invalid_input"),
        ("{\"for_ms\": 0}", "invalid_input"),
        ("{\"for_ms\": 18446744073709551615}", "invalid_input"),
        ("{\"forms\": 5}", "invalid_input"),
    ] {
        let answer = instance.ask(PAUSE, &[JSON], body).await?;
        let shown: String = body.chars().take(40).collect();
        assert_eq!(
            (answer.status, answer.code()?.as_str()),
            (400, code),
            "{shown}: {answer:?}"
        );
        assert_eq!(answer.json()?["applied"], "no", "{answer:?}");
    }
    let stats = queue.stats().await?;
    assert!(!stats.paused && stats.closed_ms == 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn too_large_body_is_refused() -> Result<()> {
    let instance = Instance::open().await?;
    instance.queue("orders").await?;
    let large = " ".repeat((1 << 20) + 1);
    assert_refused!(
        instance.ask(PAUSE, &[JSON], &large).await?,
        413,
        "too_large"
    );
    // A `Content-Length` beyond the limit; the body is never sent.
    let own = instance.address;
    let announced = format!(
        "{PAUSE} HTTP/1.1\r\nHost: {own}\r\nContent-Length: 99999999999\r\nConnection: close\r\n\r\n"
    );
    assert_refused!(instance.raw(announced.as_bytes()).await?, 413, "too_large");
    // A body in chunks, without a `Content-Length`.
    let chunks = format!("10000\r\n{}\r\n", " ".repeat(0x10000)).repeat(17);
    let chunked = format!(
        "{PAUSE} HTTP/1.1\r\nHost: {own}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n{chunks}0\r\n\r\n"
    );
    assert_refused!(instance.raw(chunked.as_bytes()).await?, 413, "too_large");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn truncated_body_changes_no_queue() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    let mut stream = instance.connect().await?;
    let head = format!(
        "{PAUSE} HTTP/1.1\r\nHost: {}\r\n{JSON}\r\nContent-Length: 100\r\n\r\n",
        instance.address
    );
    stream.write_all(format!("{head}{{}}").as_bytes()).await?;
    stream.shutdown().await?;
    to_end(&mut stream).await?;
    assert!(!queue.stats().await?.paused);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn body_that_pauses_for_10_s_is_refused() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    let mut stream = instance.connect().await?;
    let head = format!(
        "{PAUSE} HTTP/1.1\r\nHost: {}\r\n{JSON}\r\nContent-Length: 20\r\nConnection: close\r\n\r\n",
        instance.address
    );
    stream.write_all(format!("{head}{{").as_bytes()).await?;
    assert_refused!(
        Answer::parse(&to_end(&mut stream).await?)?,
        408,
        "body_timeout"
    );
    assert!(!queue.stats().await?.paused);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_share_one_memory_limit() -> Result<()> {
    let instance = Instance::start(|config, _| {
        config.max_body_bytes = 64;
        Ok(Vec::new())
    })
    .await?;
    instance.queue("orders").await?;
    let blank = format!("{{}}{}", " ".repeat(98));
    let answer = instance.ask(PAUSE, &[JSON], &blank).await?;
    assert_refused!(&answer, 503, "bodies_full");
    assert_eq!(answer.json()?["retryable"], true);
    // The refused body has freed its share of memory.
    let answer = instance.ask(PAUSE, &[JSON], "{\"for_ms\": 60000}").await?;
    assert_eq!(answer.status, 200, "{answer:?}");
    Ok(())
}

//! Heads that hide a second request, or that never end.

use anyhow::Result;
use tokio::io::AsyncWriteExt;

use crate::instance::{Answer, Instance, to_end};

/// How many responses the server sent.
fn responses(text: &str) -> usize {
    text.matches("HTTP/1.1 ").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn length_with_chunks_hides_no_second_request() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, own) = (instance.queue("orders").await?, instance.address);
    let hidden = format!("PUT /v1/queues/orders/pause HTTP/1.1\r\nHost: {own}\r\n\r\n");
    let body = format!("0\r\n\r\n{hidden}");
    let length = format!("Content-Length: {}", body.len());
    let chunked = "Transfer-Encoding: chunked";
    for (one, other) in [(&*length, chunked), (chunked, &*length)] {
        let request =
            format!("GET /v1/queues HTTP/1.1\r\nHost: {own}\r\n{one}\r\n{other}\r\n\r\n{body}");
        let text = instance.raw_text(request.as_bytes()).await?;
        assert_eq!(responses(&text), 1, "the connection goes on: {text}");
    }
    assert!(!queue.stats().await?.paused);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_lengths_are_refused() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, own) = (instance.queue("orders").await?, instance.address);
    let hidden = format!("PUT /v1/queues/orders/pause HTTP/1.1\r\nHost: {own}\r\n\r\n");
    for headers in [
        format!("Content-Length: 0\r\nContent-Length: {}", hidden.len()),
        "Content-Length: -1".to_owned(),
        "Content-Length: +5".to_owned(),
        "Content-Length: 0x5".to_owned(),
        "Content-Length: 99999999999999999999999".to_owned(),
        "Transfer-Encoding: chunked, identity".to_owned(),
        "Transfer-Encoding: xchunked".to_owned(),
        "Transfer-Encoding : chunked".to_owned(),
        "X: y\r\n folded".to_owned(),
        "X\u{0}: y".to_owned(),
        "X: a\u{0}b".to_owned(),
    ] {
        let request =
            format!("GET /v1/queues HTTP/1.1\r\nHost: {own}\r\n{headers}\r\n\r\n{hidden}");
        let text = instance.raw_text(request.as_bytes()).await?;
        let answer = Answer::parse(&text)?;
        assert_eq!(
            (answer.status, responses(&text)),
            (400, 1),
            "{headers:?}: {text}"
        );
    }
    assert!(!queue.stats().await?.paused);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn oversize_head_is_refused() -> Result<()> {
    let instance = Instance::open().await?;
    let own = instance.address;
    let value = "x".repeat(17 << 10);
    let many = "X: y\r\n".repeat(200);
    for request in [
        format!("GET /v1/queues HTTP/1.1\r\nHost: {own}\r\nX: {value}\r\n\r\n"),
        format!("GET /{value} HTTP/1.1\r\nHost: {own}\r\n\r\n"),
        format!("GET /v1/queues HTTP/1.1\r\nHost: {own}\r\n{many}\r\n"),
        // Without an end.
        format!("GET /v1/queues HTTP/1.1\r\nHost: {own}\r\nX: {value}"),
    ] {
        let answer = instance.raw(request.as_bytes()).await?;
        assert!(matches!(answer.status, 414 | 431), "{answer:?}");
    }
    let fits = "x".repeat(14 << 10);
    let header = format!("X: {fits}");
    assert_eq!(
        instance.ask("GET /v1/queues", &[&header], "").await?.status,
        200
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_head_ends_the_connection() -> Result<()> {
    let instance = Instance::open().await?;
    let silent = async {
        let mut stream = instance.connect().await?;
        to_end(&mut stream).await
    };
    let slow = async {
        let mut stream = instance.connect().await?;
        // A byte a second resets no timer.
        let mut second = tokio::time::interval(std::time::Duration::from_secs(1));
        for byte in format!("GET /v1/queues HTTP/1.1\r\nHost: {}\r\n", instance.address).bytes() {
            second.tick().await;
            if stream.write_all(&[byte]).await.is_err() {
                return Ok(String::new());
            }
        }
        anyhow::bail!("the connection took the whole head")
    };
    let (silent, slow) = tokio::join!(silent, slow);
    assert_eq!((silent?, slow?), (String::new(), String::new()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_serves_request_after_request() -> Result<()> {
    let instance = Instance::open().await?;
    let own = instance.address;
    let request = format!("GET /v1/queues HTTP/1.1\r\nHost: {own}\r\n\r\n");
    let last = format!("GET /v1/queues HTTP/1.1\r\nHost: {own}\r\nConnection: close\r\n\r\n");
    let text = instance
        .raw_text(format!("{request}{request}{last}").as_bytes())
        .await?;
    assert_eq!(responses(&text), 3, "{text}");
    Ok(())
}

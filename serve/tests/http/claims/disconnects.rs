//! Callers that disconnect.

use anyhow::Result;
use dueq::{Message, Queue};
use dueq_serve::{Access, Config, router};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::{
    CLAIM, JSON, LARGE, LIMIT, WAITS, begin, is_untouched, one, push_large, until, waiting,
};
use crate::instance::{Instance, request, to_end};

const REPEATABLE: &str = r#"{"wait_ms": 50000, "lease_ms": 600000, "claim_id": "a"}"#;

#[tokio::test(flavor = "multi_thread")]
async fn claim_ends_when_its_caller_disconnects() -> Result<()> {
    for (body, is_half) in [
        (WAITS, false),
        (WAITS, true),
        (REPEATABLE, false),
        (REPEATABLE, true),
    ] {
        let instance = Instance::open().await?;
        let queue = instance.client.queue("orders")?;
        let later = Message::new("x").id("1").due(LIMIT);
        queue.push_message(later).await?;
        let mut stream = begin(&instance, &[], body).await?;
        waiting(&instance, 1).await?;
        // A later claim is answered, so the server has ended the first one; had that one got the
        // message, it would count as claimed.
        let none = instance
            .ask(CLAIM, &[JSON], r#"{"lease_ms": 600000}"#)
            .await?;
        assert_eq!(none.status, 204, "{none:?}");
        // After a half-close the caller could still read. But a proxy that lost its caller sends a
        // half-close too.
        if is_half {
            stream.shutdown().await?;
        } else {
            drop(stream);
        }
        waiting(&instance, 0).await?;
        let _ = queue.run_now("1").await?;
        is_untouched(&queue).await?;
        assert_eq!(queue.stats().await?.claimed, 1, "only the other one");
    }
    Ok(())
}

/// A claim whose answer is larger than the socket buffers, and whose caller does not read.
async fn unread(instance: &Instance, body: &str) -> Result<(Queue, TcpStream)> {
    let queue = instance.client.queue("orders")?;
    push_large(&queue).await?;
    let mut stream = begin(instance, &[], body).await?;
    // The first bytes of the answer have arrived: the server is writing it.
    stream.read_exact(&mut [0; 100]).await?;
    assert_eq!(queue.stats().await?.leased, 1);
    Ok((queue, stream))
}

#[tokio::test(flavor = "multi_thread")]
async fn unwritten_answer_releases_its_messages() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, stream) = unread(&instance, WAITS).await?;
    drop(stream);
    let stats = until(&queue, "the release", |stats| stats.leased == 0).await?;
    assert_eq!(stats.claimed, 1);
    is_untouched(&queue).await
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_an_unwritten_repeatable_answer_stay_leased() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, stream) = unread(&instance, REPEATABLE).await?;
    drop(stream);
    let answer = instance.ask(CLAIM, &[JSON], REPEATABLE).await?;
    assert_eq!(answer.json()?["repeated"], true);
    let delivery = one(&answer)?;
    assert_eq!(delivery["crashes"], 0, "{}", delivery["crashes"]);
    assert_eq!(delivery["payload"].as_str().map(str::len), Some(LARGE));
    let stats = queue.stats().await?;
    assert_eq!((stats.claimed, stats.leased), (1, 1));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_an_answer_that_was_read_stay_leased() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, mut stream) = unread(&instance, WAITS).await?;
    to_end(&mut stream).await?;
    drop(stream);
    // First a small answer, and then another request on the connection.
    queue.push_message(Message::new("x").id("2")).await?;
    let mut stream = instance.connect().await?;
    let own = instance.address;
    let length = WAITS.len();
    let claim = format!(
        "{CLAIM} HTTP/1.1\r\nHost: {own}\r\n{JSON}\r\nContent-Length: {length}\r\n\r\n{WAITS}"
    );
    stream.write_all(claim.as_bytes()).await?;
    let mut first = vec![0; 15];
    stream.read_exact(&mut first).await?;
    assert_eq!(first, b"HTTP/1.1 200 OK");
    let last = format!("GET /healthz HTTP/1.1\r\nHost: {own}\r\nConnection: close\r\n\r\n");
    stream.write_all(last.as_bytes()).await?;
    assert!(to_end(&mut stream).await?.contains("HTTP/1.1 200 OK"));
    waiting(&instance, 0).await?;
    // If the server released the messages, it would have done so by now: both connections have
    // ended.
    let end = tokio::time::Instant::now() + std::time::Duration::from_millis(300);
    while tokio::time::Instant::now() < end {
        assert_eq!(queue.stats().await?.leased, 2);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn mounted_router_releases_an_unwritten_answer() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    push_large(&queue).await?;
    let config = Config {
        access: Access::Everybody,
        ..Config::default()
    };
    let app = axum::Router::new().nest("/dueq", router(instance.client.clone(), config)?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let serving = tokio::spawn(async move { axum::serve(listener, app).await });
    let line = CLAIM.replace("/v1", "/dueq/v1");
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(65_536)?;
    let mut stream = socket.connect(address).await?;
    let claim = request(address, &line, &[JSON], WAITS);
    stream.write_all(claim.as_bytes()).await?;
    stream.read_exact(&mut [0; 100]).await?;
    assert_eq!(queue.stats().await?.leased, 1);
    drop(stream);
    until(&queue, "the release", |stats| stats.leased == 0).await?;
    is_untouched(&queue).await?;
    serving.abort();
    Ok(())
}

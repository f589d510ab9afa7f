//! Claims: their answers, and the release of grants that no caller received.

mod access;
mod answers;
mod disconnects;
mod many;
mod partitions;
mod repeated;
mod stop;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dueq::{Message, Queue, QueueLimits, QueueStats};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

use crate::instance::{Answer, Instance, JSON, LIMIT, request};

const CLAIM: &str = "POST /v1/queues/orders/claims";
/// The body of a claim that waits.
const WAITS: &str = r#"{"wait_ms": 50000, "lease_ms": 600000}"#;

/// The size of a payload that is larger than the socket buffers.
const LARGE: usize = 8 << 20;

/// Pushes a message whose answer is larger than the socket buffers.
async fn push_large(queue: &Queue) -> Result<()> {
    let limits = QueueLimits::new().max_payload_bytes(16 << 20);
    queue.configure(limits).await?;
    let message = Message::new("x".repeat(LARGE)).id("1");
    queue.push_message(message).await?;
    Ok(())
}

/// The deliveries of an answer.
fn deliveries(answer: &Answer) -> Result<Vec<Value>> {
    assert_eq!(answer.status, 200, "{answer:?}");
    let grant = answer.json()?;
    Ok(grant["deliveries"]
        .as_array()
        .context("deliveries")?
        .clone())
}

/// The only delivery of an answer.
fn one(answer: &Answer) -> Result<Value> {
    let mut all = deliveries(answer)?;
    ensure!(all.len() == 1, "{answer:?}");
    all.pop().context("a delivery")
}

/// Sends a claim, and leaves its connection open.
async fn begin(instance: &Instance, headers: &[&str], body: &str) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(65_536)?;
    let mut stream = socket.connect(instance.address).await?;
    let mut all = vec![JSON];
    all.extend(headers);
    let request = request(instance.address, CLAIM, &all, body);
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

/// Waits until this number of claims wait in the server.
async fn waiting(instance: &Instance, claims: usize) -> Result<()> {
    let end = Instant::now() + LIMIT;
    let line = format!("dueq_serve_claims {claims}");
    loop {
        let bearer = match instance.folder.join("tokens.toml").exists() {
            true => vec![instance.bearer("operator")],
            false => Vec::new(),
        };
        let headers: Vec<_> = bearer.iter().map(String::as_str).collect();
        let page = instance.ask("GET /metrics", &headers, "").await?.body;
        if page.lines().any(|other| other == line) {
            return Ok(());
        }
        ensure!(Instant::now() < end, "not {claims} claims: {page}");
    }
}

/// Waits until the counts of the queue are as expected.
async fn until(
    queue: &Queue,
    what: &str,
    expected: impl Fn(&QueueStats) -> bool,
) -> Result<QueueStats> {
    let end = Instant::now() + LIMIT;
    loop {
        let stats = queue.stats().await?;
        if expected(&stats) {
            return Ok(stats);
        }
        ensure!(Instant::now() < end, "{what}: {stats:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Checks that the next claim gets the message at once, and that neither a failure nor a crash was
/// counted.
async fn is_untouched(queue: &Queue) -> Result<()> {
    let puller = queue.puller();
    let taken = puller.pull(1, LIMIT, LIMIT).await?;
    assert_eq!(taken.len(), 1);
    assert_eq!((taken[0].attempt(), taken[0].crashes()), (1, 0));
    Ok(puller.shutdown().await?)
}

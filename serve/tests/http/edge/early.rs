//! Responses that the server sends before the request body has ended: the caller can read them.

use anyhow::{Context, Result};
use tokio::io::AsyncWriteExt;

use crate::assert_refused;
use crate::instance::{Answer, Instance, to_end};

const LINES: &str = "Content-Type: application/x-ndjson";

/// A body of lines with at least this number of bytes.
fn lines(bytes: usize) -> String {
    let line = format!("{{\"payload\": \"{}\"}}\n", "x".repeat(1_000));
    line.repeat(bytes / line.len() + 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_reads_a_failure_that_ends_its_upload() -> Result<()> {
    let instance = Instance::open().await?;
    instance.queue("orders").await?;
    instance
        .redis
        .command(&["CONFIG", "SET", "maxmemory", "1"])?;
    let (body, own) = (lines(24 << 20), instance.address);
    let head = format!("POST /v1/queues/orders/messages HTTP/1.1\r\nHost: {own}\r\n{LINES}\r\n");
    let length = format!("{head}Content-Length: {}\r\n\r\n", body.len());
    let chunks = format!(
        "{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n",
        body.len()
    );
    for (head, end) in [(length, ""), (chunks, "\r\n0\r\n\r\n")] {
        // A client that first writes its whole request, and only then reads.
        let mut stream = instance.connect().await?;
        for part in [head.as_bytes(), body.as_bytes(), end.as_bytes()] {
            stream
                .write_all(part)
                .await
                .context("the server resets the connection")?;
        }
        let answer = Answer::parse(&to_end(&mut stream).await?)?;
        assert_refused!(&answer, 507, "full");
        assert_eq!(answer.json()?["pushed"]["created"], 0, "{answer:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn body_of_a_refused_caller_takes_no_memory() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let body = lines(24 << 20);
    let answer = instance
        .ask("POST /v1/queues/orders/messages", &[LINES], &body)
        .await?;
    assert_refused!(&answer, 401, "unauthenticated");
    let metrics = instance.ask_as("viewer", "GET /metrics", "").await?.body;
    assert!(metrics.contains("dueq_serve_body_bytes 0\n"), "{metrics}");
    Ok(())
}

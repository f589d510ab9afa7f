//! The largest number of streams, searches and bodies, and one more; and peers that do not read.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::assert_refused;
use crate::instance::{Answer, Instance, to_end};

/// The value of this gauge or counter.
async fn metric(instance: &Instance, name: &str) -> Result<f64> {
    let page = instance.call("GET /metrics").await?.body;
    let line = page
        .lines()
        .find(|line| line.starts_with(&format!("{name} ")));
    let value = line.and_then(|line| line.split(' ').nth(1));
    Ok(value
        .with_context(|| format!("{name} in {page}"))?
        .parse()?)
}

pub(crate) async fn until(instance: &Instance, name: &str, wanted: f64) -> Result<()> {
    let end = std::time::Instant::now() + crate::instance::LIMIT;
    loop {
        let value = metric(instance, name).await?;
        if value == wanted {
            return Ok(());
        }
        anyhow::ensure!(std::time::Instant::now() < end, "{name} stays {value}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Freezes Redis, so that calls wait for seconds, or lets it go on.
fn freeze(instance: &Instance, is_frozen: bool) -> Result<()> {
    let signal = if is_frozen { "-STOP" } else { "-CONT" };
    let pid = instance.redis.pid().to_string();
    let status = std::process::Command::new("kill")
        .args([signal, &pid])
        .status()?;
    anyhow::ensure!(status.success(), "kill {signal}: {status}");
    Ok(())
}

/// A connection with a stream of events whose first bytes have arrived.
async fn stream(instance: &Instance) -> Result<(TcpStream, String)> {
    let mut stream = instance.connect().await?;
    let head = format!(
        "GET /v1/events?queues=orders HTTP/1.1\r\nHost: {}\r\n\r\n",
        instance.address
    );
    stream.write_all(head.as_bytes()).await?;
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
        anyhow::ensure!(stream.read_buf(&mut bytes).await? > 0, "the stream ended");
    }
    Ok((stream, String::from_utf8_lossy(&bytes).into_owned()))
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_beyond_256_is_refused_until_one_ends() -> Result<()> {
    let instance = Instance::open().await?;
    instance.queue("orders").await?;
    let mut streams = Vec::new();
    for number in 0..256 {
        let (stream, head) = stream(&instance).await?;
        assert!(head.starts_with("HTTP/1.1 200"), "{number}: {head}");
        streams.push(stream);
    }
    assert_eq!(metric(&instance, "dueq_serve_streams").await?, 256.0);
    let one_more = instance.call("GET /v1/events?queues=orders").await?;
    assert_refused!(&one_more, 503, "busy");
    assert_eq!(one_more.header("retry-after"), Some("30"));
    // Other requests are still served.
    assert_eq!(instance.call("GET /v1/queues/orders").await?.status, 200);
    drop(streams.pop());
    until(&instance, "dueq_serve_streams", 255.0).await?;
    let (last, head) = stream(&instance).await?;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    drop((last, streams));
    until(&instance, "dueq_serve_streams", 0.0).await
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_of_a_peer_that_does_not_read_is_closed() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    queue.push("x").id("0").await?;
    let limits = dueq::QueueLimits::new().max_payload_bytes(16 << 20);
    queue.configure(limits).await?;
    queue.push(vec![b'x'; 16 << 20]).id("1").await?;
    let mut silent = instance.connect().await?;
    let head = format!(
        "GET /v1/queues/orders/messages/1/payload HTTP/1.1\r\nHost: {}\r\n\r\n",
        instance.address
    );
    silent.write_all(head.as_bytes()).await?;
    silent.read_exact(&mut [0; 12]).await?; // the response has begun
    assert_eq!(metric(&instance, "dueq_serve_connections").await?, 2.0);
    until(&instance, "dueq_serve_connections", 1.0).await?;
    let rest = to_end(&mut silent).await?;
    assert!(rest.len() < 16 << 20, "the whole response was sent");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_one_search_per_caller_and_four_in_all_run() -> Result<()> {
    let instance = std::sync::Arc::new(Instance::with_tokens().await?);
    for name in ["orders", "other-1"] {
        instance.queue(name).await?;
    }
    let listed = instance.ask_as("viewer", "GET /v1/queues", "").await?;
    assert!(listed.body.contains("other-1"), "{listed:?}");
    let search = |role: &'static str| {
        let instance = std::sync::Arc::clone(&instance);
        async move { instance.ask_as(role, "GET /v1/search?id=1", "").await }
    };
    // Redis is frozen meanwhile, so that no search ends.
    freeze(&instance, true)?;
    let (mut one, mut other) = (Box::pin(search("viewer")), Box::pin(search("viewer")));
    let (refused, left) = tokio::select! {
        answer = &mut one => (answer?, other),
        answer = &mut other => (answer?, one),
    };
    assert_refused!(&refused, 503, "busy");
    freeze(&instance, false)?;
    let found = left.await?;
    assert_eq!(found.status, 200, "{found:?}");
    freeze(&instance, true)?;
    let mut all = tokio::task::JoinSet::new();
    for role in ["viewer", "producer", "consumer", "operator", "foreigner"] {
        all.spawn(search(role));
    }
    let refused = all.join_next().await.context("an answer")???;
    assert_refused!(&refused, 503, "busy");
    freeze(&instance, false)?;
    for answer in all.join_all().await {
        assert_eq!(answer?.status, 200);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_uploads_stay_within_the_memory_limit() -> Result<()> {
    let instance = Instance::start(|config, _| {
        config.max_body_bytes = 1 << 20;
        Ok(Vec::new())
    })
    .await?;
    instance.queue("orders").await?;
    let put = format!(
        "PUT /v1/queues/orders/messages/1 HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Content-Length: 1000000\r\nConnection: close\r\n\r\n{}",
        instance.address,
        " ".repeat(100_000)
    );
    let mut uploads = Vec::new();
    for _ in 0..20 {
        let mut upload = instance.connect().await?;
        upload.write_all(put.as_bytes()).await?;
        uploads.push(upload);
    }
    let (mut full, mut paused) = (0, 0);
    for upload in &mut uploads {
        let answer = Answer::parse(&to_end(upload).await?)?;
        match &*answer.code()? {
            "bodies_full" => full += 1,
            "body_timeout" => paused += 1,
            other => panic!("{other}: {answer:?}"),
        }
        assert_eq!(answer.json()?["applied"], "no", "{answer:?}");
        let used = metric(&instance, "dueq_serve_body_bytes").await?;
        assert!(used <= f64::from(1 << 20), "{used}");
    }
    assert!(full >= 10 && paused >= 1, "{full} full, {paused} paused");
    assert_eq!(metric(&instance, "dueq_serve_body_bytes").await?, 0.0);
    let put = "PUT /v1/queues/orders/messages/2";
    let media_type = "Content-Type: application/json";
    let answer = instance
        .ask(put, &[media_type], "{\"payload\": \"x\"}")
        .await?;
    assert_eq!(answer.status, 201, "{answer:?}");
    Ok(())
}

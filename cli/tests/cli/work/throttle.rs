//! `--throttle-queue`: a receiver that asks for a break closes the queue.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dueq::outcomes::RetryOutcome;
use dueq::{Message, Queue};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use crate::work::http::{Receiver, Request, post, read};
use crate::work::support::{queue, stats, until};

const MESSAGES: usize = 16;
/// Redis counts the break in whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(10);

async fn push(queue: &Queue, ids: &[&str]) -> Result<()> {
    for id in ids {
        queue.push_message(Message::new(*id).id(id)).await?;
    }
    Ok(())
}

/// Answers this number of requests, after all of them have arrived. Returns when the first request
/// arrived, and when the first answer was sent.
async fn answer_together(listener: &TcpListener, answer: &str) -> Result<[Instant; 2]> {
    let (mut streams, mut first) = (Vec::new(), None);
    while streams.len() < MESSAGES {
        let mut stream = BufReader::new(listener.accept().await?.0);
        first = first.or_else(|| Some(Instant::now()));
        read(&mut stream).await?;
        streams.push(stream);
    }
    let answered = Instant::now();
    let answer = format!("HTTP/1.1 {answer}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    for stream in &mut streams {
        stream.get_mut().write_all(answer.as_bytes()).await?;
    }
    Ok([first.context("a request")?, answered])
}

#[tokio::test]
async fn refused_requests_close_the_queue_for_retry_after() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://127.0.0.1:{}/hook", listener.local_addr()?.port());
    for number in 0..MESSAGES {
        orders
            .push_message(Message::new("x").id(format!("m{number}")))
            .await?;
    }
    // A counted failure would make the message die, and so fail the test.
    let flags = ["--throttle-queue", "--concurrency", "16"];
    let flags = [&flags[..], &["--max-attempts", "1"]].concat();
    let _worker = post(&server.url(), &url, &flags)?;
    let refusal = "429 Too Many Requests\r\nRetry-After: 2";
    let [_, refused] = answer_together(&listener, refusal).await?;
    let [next, _] = answer_together(&listener, "200 OK").await?;
    let pause = next.duration_since(refused);
    assert!(
        pause + ROUNDING >= Duration::from_secs(2),
        "a request came {pause:?} after the first refusal"
    );
    let all = MESSAGES as u64;
    let stats = stats(&orders, "16 acks", |stats| stats.acked == all).await?;
    assert_eq!(
        (stats.throttled, stats.retried, stats.died),
        (all, 0, 0),
        "{stats:?}"
    );
    Ok(())
}

/// The ids and attempts of the messages in one request of `--batch`.
fn messages(request: &Request) -> Result<Vec<(String, u64)>> {
    let body: Vec<serde_json::Value> = serde_json::from_slice(&request.body)?;
    body.iter()
        .map(|message| {
            let id = message["id"].as_str().context("an id")?;
            let attempt = message["attempt"].as_u64().context("an attempt")?;
            Ok((id.to_owned(), attempt))
        })
        .collect()
}

#[tokio::test]
async fn refused_batch_tries_no_other_message_of_it() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    push(&orders, &["failed"]).await?;
    let failed = until("a delivery", async || {
        Ok(orders.claim(1, Duration::from_secs(60)).await?.pop())
    })
    .await?;
    let retried = failed.retry(Duration::ZERO, "busy").await?;
    ensure!(matches!(retried, RetryOutcome::Scheduled(_)), "{retried:?}");
    push(&orders, &["new"]).await?;
    stats(&orders, "both are due", |stats| {
        stats.due + stats.ready == 2
    })
    .await?;
    let answers = &[
        "503 Service Unavailable\r\nRetry-After: 1",
        "200 OK",
        "200 OK",
    ];
    let mut receiver = Receiver::start(answers).await?;
    let flags = ["--throttle-queue", "--batch", "2", "--linger", "5s"];
    let _worker = post(&server.url(), &receiver.url, &flags)?;
    let mut seen = Vec::new();
    for _ in answers {
        seen.extend(messages(&receiver.request().await?)?);
    }
    let expected = [("new", 1), ("new", 1), ("failed", 2)];
    assert_eq!(
        seen,
        expected.map(|(id, attempt)| (id.to_owned(), attempt)),
        "the message that failed before is not tried during the break"
    );
    let stats = stats(&orders, "2 acks", |stats| stats.acked == 2).await?;
    assert_eq!((stats.throttled, stats.retried), (2, 1), "{stats:?}");
    Ok(())
}

#[tokio::test]
async fn status_503_without_retry_after_is_retried_alone() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    push(&orders, &["a"]).await?;
    let mut receiver = Receiver::start(&["503 Service Unavailable", "200 OK"]).await?;
    let flags = ["--throttle-queue", "--retry-min", "10ms"];
    let _worker = post(&server.url(), &receiver.url, &flags)?;
    receiver.request().await?;
    receiver.request().await?;
    let stats = stats(&orders, "1 ack", |stats| stats.acked == 1).await?;
    assert_eq!((stats.throttled, stats.retried), (0, 1), "{stats:?}");
    Ok(())
}

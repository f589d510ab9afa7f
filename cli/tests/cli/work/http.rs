//! `--http`: the signed request, and the settlement by the response.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dueq::outcomes::PushOutcome;
use dueq::{Message, MessageState};
use hmac::{Hmac, KeyInit, Mac};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::work::support::{Dueq, command, queue, stats, stored};

const SECRET: &[u8; 32] = b"thirty-two bytes that are secret";

pub(crate) struct Request {
    pub(crate) line: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

/// An HTTP server that gives every request its fixed answers, and forwards the requests to the
/// test.
pub(crate) struct Receiver {
    pub(crate) url: String,
    requests: mpsc::UnboundedReceiver<Request>,
}

impl Receiver {
    /// Answers each request with this status line and these headers; never answers if `answers` is
    /// empty.
    pub(crate) async fn start(answers: &'static [&'static str]) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://127.0.0.1:{}/hook", listener.local_addr()?.port());
        let (sender, requests) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut answers = answers.iter().copied();
            while let Ok((stream, _)) = listener.accept().await {
                let mut stream = BufReader::new(stream);
                let Ok(request) = read(&mut stream).await else {
                    continue;
                };
                let _ = sender.send(request);
                match answers.next() {
                    Some(answer) => {
                        let answer = format!(
                            "HTTP/1.1 {answer}\r\nConnection: close\r\nContent-Length: 4\r\n\r\nsaid"
                        );
                        let _ = stream.get_mut().write_all(answer.as_bytes()).await;
                    }
                    // Keep the connection open without an answer.
                    None => std::mem::forget(stream),
                }
            }
        });
        Ok(Self { url, requests })
    }

    pub(crate) async fn request(&mut self) -> Result<Request> {
        self.requests.recv().await.context("the receiver has ended")
    }
}

pub(crate) async fn read(stream: &mut BufReader<TcpStream>) -> Result<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let mut headers = BTreeMap::new();
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).await?;
        let Some((name, value)) = header.trim_end().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers
        .get("content-length")
        .map_or(Ok(0), |length| length.parse())?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(Request {
        line: line.trim_end().to_owned(),
        headers,
        body,
    })
}

pub(crate) fn post(server: &str, url: &str, more: &[&str]) -> Result<Dueq> {
    post_of("orders", server, url, more)
}

/// Starts a worker that posts the messages of a queue or of a pattern.
fn post_of(name: &str, server: &str, url: &str, more: &[&str]) -> Result<Dueq> {
    Dueq::run(&mut post_command(name, server, url, more))
}

/// The command that posts the messages of a queue or of a pattern.
pub(crate) fn post_command(name: &str, server: &str, url: &str, more: &[&str]) -> Command {
    let args = [&["work", name, "--http", url, "--allow-private"], more].concat();
    let mut command = command(server, &args);
    command.env(
        "DUEQ_WEBHOOK_SECRET",
        format!("whsec_{}", STANDARD.encode(SECRET)),
    );
    command
}

#[tokio::test]
async fn posted_signature_can_be_verified() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let mut receiver = Receiver::start(&["204 No Content", "200 OK"]).await?;
    let _worker = post(&server.url(), &receiver.url, &["--concurrency", "1"])?;
    for (id, header, payload, content) in [
        (
            "order:42",
            "order:42",
            &b"{\"order\":42}"[..],
            "application/json",
        ),
        (
            "h\u{e9} 1.5%",
            "h%C3%A9%201%2E5%25",
            b"\0\xff\r\n\r\n",
            "application/octet-stream",
        ),
    ] {
        orders.push_message(Message::new(payload).id(id)).await?;
        let request = receiver.request().await?;
        assert_eq!(request.line, "POST /hook HTTP/1.1");
        assert_eq!(request.body, payload);
        assert_eq!(request.headers["webhook-id"], header);
        assert_eq!(request.headers["content-type"], content);
        let timestamp = &request.headers["webhook-timestamp"];
        let age = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)?
            .as_secs()
            - timestamp.parse::<u64>()?;
        assert!(age <= 60, "{age} s old");
        let mac = Hmac::<sha2::Sha256>::new_from_slice(SECRET)?
            .chain_update(format!("{header}.{timestamp}."))
            .chain_update(payload);
        let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        assert_eq!(request.headers["webhook-signature"], expected);
    }
    stats(&orders, "2 acks", |stats| stats.acked == 2).await?;
    Ok(())
}

#[tokio::test]
async fn posts_and_batches_of_a_pattern_name_the_queue() -> Result<()> {
    for batch in [&[][..], &["--batch", "2", "--linger", "1ms"]] {
        let (server, orders) = queue("orders-de").await?;
        orders.push_message(Message::new("x").id("a")).await?;
        let mut receiver = Receiver::start(&["200 OK"]).await?;
        let _worker = post_of("orders-*", &server.url(), &receiver.url, batch)?;
        let request = receiver.request().await?;
        assert_eq!(request.headers["dueq-queue"], "orders-de");
        if !batch.is_empty() {
            let body: serde_json::Value = serde_json::from_slice(&request.body)?;
            assert_eq!(body[0]["queue"], "orders-de");
        }
        stats(&orders, "1 ack", |stats| stats.acked == 1).await?;
    }
    Ok(())
}

#[tokio::test]
async fn request_has_the_trace_of_its_message() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let mut receiver = Receiver::start(&["204 No Content", "200 OK"]).await?;
    let _worker = post(&server.url(), &receiver.url, &["--concurrency", "1"])?;
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for (message, header) in [
        (Message::new("x").trace_parent(parent), Some(parent)),
        (Message::new("x"), None),
    ] {
        orders.push_message(message).await?;
        assert_eq!(
            receiver
                .request()
                .await?
                .headers
                .get("traceparent")
                .map(String::as_str),
            header
        );
    }
    Ok(())
}

#[tokio::test]
async fn redirect_is_not_followed_and_410_buries() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let mut elsewhere = Receiver::start(&["200 OK"]).await?;
    let location: &'static str =
        format!("307 Temporary Redirect\r\nLocation: {}", elsewhere.url).leak();
    let mut receiver = Receiver::start(vec![location, "410 Gone"].leak()).await?;
    let _worker = post(&server.url(), &receiver.url, &[])?;
    orders
        .push_message(Message::new("x").id("moved").max_attempts(1))
        .await?;
    receiver.request().await?;
    let dead = stored(&orders, "moved", |stored| {
        stored.state == MessageState::Dead
    })
    .await?;
    assert!(
        dead.error.contains("307") && dead.error.contains("not followed"),
        "{}",
        dead.error
    );
    assert!(
        elsewhere.requests.try_recv().is_err(),
        "the redirect was followed"
    );

    orders.push_message(Message::new("x").id("gone")).await?;
    let dead = stored(&orders, "gone", |stored| stored.state == MessageState::Dead).await?;
    assert_eq!(
        (dead.error.as_str(), dead.failures),
        ("HTTP 410 Gone: said", 0)
    );
    Ok(())
}

#[tokio::test]
async fn retry_after_is_honoured() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let in_an_hour = httpdate::fmt_http_date(
        std::time::SystemTime::now() + std::time::Duration::from_secs(3600),
    );
    let date: &'static str = format!("429 Too Many Requests\r\nRetry-After: {in_an_hour}").leak();
    let mut receiver =
        Receiver::start(vec!["503 Service Unavailable\r\nRetry-After: 7200", date].leak()).await?;
    let _worker = post(&server.url(), &receiver.url, &["--concurrency", "1"])?;
    for (id, seconds) in [("seconds", 7200), ("date", 3600)] {
        let before = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)?
            .as_millis() as u64;
        orders.push_message(Message::new("x").id(id)).await?;
        receiver.request().await?;
        let stored = stored(&orders, id, |stored| stored.failures == 1).await?;
        let after = (stored.time_ms - before) / 1_000;
        assert!(
            (seconds - 60..=seconds + 60).contains(&after),
            "{id}: again in {after} s"
        );
        assert!(stored.error.starts_with("HTTP "), "{}", stored.error);
    }
    Ok(())
}

#[tokio::test]
async fn silent_receiver_fails_the_attempt() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let mut receiver = Receiver::start(&[]).await?;
    let mut worker = post(
        &server.url(),
        &receiver.url,
        &["--timeout", "200ms", "--max-attempts", "1"],
    )?;
    orders.push_message(Message::new("x").id("silent")).await?;
    receiver.request().await?;
    let dead = stored(&orders, "silent", |stored| {
        stored.state == MessageState::Dead
    })
    .await?;
    assert!(
        dead.error.contains("timed out") && !dead.error.contains("hook"),
        "{}",
        dead.error
    );

    // The end of the grace period releases the message of the unanswered request.
    worker.signal("KILL")?;
    worker.wait()?;
    let mut worker = post(&server.url(), &receiver.url, &["--grace", "0s"])?;
    orders.push_message(Message::new("x").id("slow")).await?;
    receiver.request().await?;
    worker.signal("TERM")?;
    assert!(worker.wait()?.success());
    let stored = orders.get("slow").await?.context("given back")?;
    assert_eq!((stored.failures, stored.crashes), (0, 0));
    assert_ne!(stored.state, MessageState::Leased);
    Ok(())
}

/// When a receiver closes a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ends {
    /// Closes it silently after the first answer.
    AfterAnswer,
    /// Reads a second request, and closes the connection without an answer.
    AtSecondRequest,
    /// Reads the first request, and closes the connection without an answer.
    AtFirstRequest,
}

/// Starts such a receiver: returns its URL, and the requests that it reads.
async fn ending(ends: Ends) -> Result<(String, mpsc::UnboundedReceiver<Request>)> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://127.0.0.1:{}/hook", listener.local_addr()?.port());
    let (sender, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                sender.send(read(&mut stream).await?)?;
                if ends != Ends::AtFirstRequest {
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                    stream.get_mut().write_all(answer).await?;
                }
                if ends == Ends::AtSecondRequest {
                    sender.send(read(&mut stream).await?)?;
                }
                anyhow::Ok(())
            });
        }
    });
    Ok((url, requests))
}

#[tokio::test]
async fn connection_that_its_receiver_ended_costs_no_attempt() -> Result<()> {
    const MESSAGES: u64 = 40;
    for ends in [Ends::AfterAnswer, Ends::AtSecondRequest] {
        let (server, orders) = queue("orders").await?;
        let (url, _requests) = ending(ends).await?;
        let once = ["--concurrency", "1", "--max-attempts", "1"];
        let _worker = post(&server.url(), &url, &once)?;
        for number in 0..MESSAGES {
            let message = Message::new("x").id(format!("order:{number}"));
            assert_eq!(
                orders.push_message(message).await?.outcome(),
                PushOutcome::Created
            );
        }
        let is_over = |stats: &dueq::QueueStats| stats.acked + stats.died == MESSAGES;
        let stats = stats(&orders, "all settled", is_over).await?;
        assert_eq!((stats.died, stats.retried), (0, 0), "{ends:?}");
    }
    Ok(())
}

#[tokio::test]
async fn broken_new_connection_counts_a_failure_and_no_repeat() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let (url, mut requests) = ending(Ends::AtFirstRequest).await?;
    let _worker = post(&server.url(), &url, &["--max-attempts", "1"])?;
    orders.push_message(Message::new("x").id("broken")).await?;
    let dead = stored(&orders, "broken", |stored| {
        stored.state == MessageState::Dead
    })
    .await?;
    assert_eq!(dead.failures, 1);
    requests.try_recv().context("a request")?;
    assert!(requests.try_recv().is_err(), "it was sent twice");
    Ok(())
}

#[tokio::test]
async fn private_address_and_missing_secret_are_refused() -> Result<()> {
    let (server, _) = queue("orders").await?;
    let secret = format!("whsec_{}", STANDARD.encode(SECRET));
    for (url, secret, reason) in [
        ("http://127.0.0.1:1/", secret.as_str(), "--allow-private"),
        ("http://localhost:1/", &secret, "--allow-private"),
        ("http://[::ffff:10.0.0.1]/", &secret, "--allow-private"),
        ("ftp://example.com/", &secret, "https://"),
        ("example.com", &secret, "URL"),
        ("https://1.1.1.1/", "short", "openssl"),
    ] {
        let output = command(&server.url(), &["work", "orders", "--http", url])
            .env("DUEQ_WEBHOOK_SECRET", secret)
            .stderr(Stdio::piped())
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{url}: {said}");
        assert!(said.contains(reason), "{url}: {said}");
    }
    let output = command(
        &server.url(),
        &["work", "orders", "--http", "https://1.1.1.1/"],
    )
    .env_remove("DUEQ_WEBHOOK_SECRET")
    .output()?;
    assert_eq!(output.status.code(), Some(2), "unsigned");
    Ok(())
}

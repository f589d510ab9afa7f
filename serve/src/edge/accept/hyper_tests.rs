//! Shows what hyper does without the gate (`Gate`) and without the time limits (`Timed`), and so
//! why both are needed. If a test fails with a later hyper, hyper has mended that fault, and our
//! part can go.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::time::Instant;

use crate::edge::accept::head::{self, Wrong};

/// How hyper dealt with a connection.
struct Ended {
    /// The number of requests that hyper ran. Their handler reads no body.
    ran: usize,
    written: io::Result<()>,
    answer: String,
    /// How long the connection lasted.
    time: Duration,
}

/// Lets hyper serve a connection that sends these bytes. The peer reads until the connection ends.
async fn served(bytes: &[u8], buffer: usize, closes: bool) -> Ended {
    let ran = Arc::new(AtomicUsize::default());
    let counted = Arc::clone(&ran);
    let service = service_fn(move |_: Request<Incoming>| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, Infallible>(Response::new(String::new())) }
    });
    let (stream, peer) = duplex(buffer);
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(10))
        .serve_connection(TokioIo::new(stream), service);
    let (mut reading, mut writing) = tokio::io::split(peer);
    let (begun, mut answer) = (Instant::now(), Vec::new());
    let write = async {
        writing.write_all(bytes).await?;
        match closes {
            true => writing.shutdown().await,
            false => Ok(()),
        }
    };
    let (_, written, _) = tokio::join!(serving, write, reading.read_to_end(&mut answer));
    Ended {
        ran: ran.load(Ordering::Relaxed),
        written,
        answer: String::from_utf8_lossy(&answer).into_owned(),
        time: begun.elapsed(),
    }
}

#[tokio::test]
async fn hyper_runs_heads_that_two_servers_read_differently() {
    let (length, chunks) = ("Content-Length: 5", "Transfer-Encoding: chunked");
    for lines in [
        format!("{length}\r\n{chunks}"),
        format!("{chunks}\r\n{length}"),
        format!("{length}\r\n{length}"),
        format!("{chunks}\r\n{chunks}"),
        "Transfer-Encoding: gzip, chunked".to_owned(),
        // A proxy that accepts only CR LF as a line end does not see this length header.
        format!("X: y\n{length}"),
    ] {
        // The body `0 CR LF CR LF` is both a body of 5 bytes and a last chunk.
        let request = format!("PUT / HTTP/1.1\r\n{lines}\r\n\r\n0\r\n\r\n");
        let ended = served(request.as_bytes(), 1 << 10, true).await;
        assert_eq!(ended.ran, 1, "{lines:?}: {}", ended.answer);
        let gate = head::read(request.as_bytes(), 0);
        assert!(matches!(gate, Err(Wrong::Broken(_))), "{lines:?}: {gate:?}");
    }
}

#[tokio::test]
async fn hyper_answers_broken_heads_without_a_document() {
    for head in [
        "GET / HTTP/1.1\r\nX\0: y\r\n\r\n",
        "GET /<> HTTP/1.1\r\n\r\n",
    ] {
        let ended = served(head.as_bytes(), 1 << 10, true).await;
        assert_eq!(ended.ran, 0, "{head:?}");
        assert!(
            ended.answer.starts_with("HTTP/1.1 400 "),
            "{}",
            ended.answer
        );
        assert!(ended.answer.ends_with("\r\n\r\n"), "{}", ended.answer);
    }
}

#[tokio::test]
async fn hyper_closes_while_the_peer_still_sends() {
    let body = "x".repeat(100_000);
    let request = format!(
        "PUT / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let ended = served(request.as_bytes(), 1 << 10, true).await;
    let written = ended.written.map_err(|error| error.kind());
    assert_eq!((ended.ran, written), (1, Err(io::ErrorKind::BrokenPipe)));
}

#[tokio::test(start_paused = true)]
async fn hyper_has_one_limit_for_a_head_and_for_idleness() {
    let request = "GET / HTTP/1.1\r\n\r\n";
    for (bytes, ran) in [(request, 1), (&request[..9], 0)] {
        let ended = served(bytes.as_bytes(), 1 << 10, false).await;
        assert_eq!((ended.ran, ended.time.as_secs()), (ran, 10));
    }
}

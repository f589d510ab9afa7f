//! Tests the gate on one end of an in-memory pipe.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use crate::edge::accept::gate::{Gate, Refusals};
use crate::edge::accept::timed::{Outbox, Phase, Timed};

const GOOD: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n\
    PUT / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello\
    GET /b HTTP/1.1\r\n\r\n";

/// Sends these bytes in parts, and then closes the sender's side. Returns what passed to hyper, and
/// what the peer received.
async fn passed(sent: &str, part: usize, room: usize) -> io::Result<(String, String)> {
    let (stream, peer) = duplex(part);
    let phase = Phase::default();
    let mut gate = Gate::new(
        Timed::new(stream, phase.clone(), Outbox::default()),
        phase,
        Refusals::default(),
    );
    let (mut reading, mut writing) = tokio::io::split(peer);
    let (mut got, mut answer) = (Vec::new(), Vec::new());
    let write = async {
        writing.write_all(sent.as_bytes()).await?;
        writing.shutdown().await
    };
    let read = async {
        let mut buffer = vec![0; room];
        loop {
            match gate.read(&mut buffer).await? {
                0 => break gate.shutdown().await,
                length => got.extend_from_slice(&buffer[..length]),
            }
        }
    };
    let (written, read, answered) = tokio::join!(write, read, reading.read_to_end(&mut answer));
    written.and(read).and(answered)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((text(&got), text(&answer)))
}

#[tokio::test]
async fn gate_passes_bytes_unchanged_in_any_parts() -> io::Result<()> {
    let chunks =
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\nanything";
    let sent = format!("{GOOD}{chunks}");
    for part in [1, 2, 3, 7, 50, 1_000] {
        for room in [1, 3, 64, 1_000] {
            let passed = passed(&sent, part, room).await?;
            assert_eq!(passed, (sent.clone(), String::new()), "{part} {room}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn gate_passes_nothing_from_a_refused_head_on() -> io::Result<()> {
    let refused = "PUT / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx";
    let sent = format!("{GOOD}{refused}{GOOD}");
    for part in [1, 7, 1_000] {
        let (got, answer) = passed(&sent, part, 64).await?;
        assert_eq!(got, GOOD, "{part}");
        assert!(
            answer.starts_with("HTTP/1.1 400 Bad Request\r\n"),
            "{answer}"
        );
        assert!(answer.ends_with("\"retryable\":false}"), "{answer}");
    }
    Ok(())
}

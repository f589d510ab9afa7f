//! A local HTTP server that asks 64 requests at once for a break.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;
use tokio::task::JoinHandle;

use crate::kit::scenarios::wall_us;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) id: String,
    pub(super) arrived_us: u64,
    /// When the answer was sent; 0 before.
    pub(super) answered_us: u64,
}

/// Holds the first `at_once` requests until all of them are there, and answers 429 to all. Holds
/// the next `at_once` in the same way, and answers 200; later ones at once. Ends on drop.
pub(super) struct Receiver {
    pub(super) port: u16,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    at_once: usize,
    retry_after_s: u64,
    requests: Mutex<Vec<Request>>,
    barrier: Barrier,
}

impl Receiver {
    pub(super) async fn start(at_once: usize, retry_after_s: u64) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            at_once,
            retry_after_s,
            requests: Mutex::default(),
            barrier: Barrier::new(at_once), // it can be used again
        });
        let serving = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let serving = Arc::clone(&serving);
                tokio::spawn(async move { serving.serve(stream).await });
            }
        });
        Ok(Self { port, shared, task })
    }

    /// The requests so far, by arrival.
    pub(super) fn requests(&self) -> Vec<Request> {
        self.shared.locked().clone()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn locked(&self) -> std::sync::MutexGuard<'_, Vec<Request>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves one connection until it ends.
    async fn serve(&self, stream: TcpStream) -> Result<()> {
        let mut stream = BufReader::new(stream);
        while let Some(id) = read(&mut stream).await? {
            let index = {
                let mut requests = self.locked();
                requests.push(Request {
                    id,
                    arrived_us: wall_us(),
                    answered_us: 0,
                });
                requests.len() - 1
            };
            if index < 2 * self.at_once {
                self.barrier.wait().await;
            }
            let answer = match index < self.at_once {
                true => format!(
                    "429 Too Many Requests\r\nretry-after: {}",
                    self.retry_after_s
                ),
                false => "200 OK".to_owned(),
            };
            // Before the answer: the break that it asks for cannot begin earlier.
            self.locked()[index].answered_us = wall_us();
            let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n");
            stream.get_mut().write_all(answer.as_bytes()).await?;
        }
        Ok(())
    }
}

/// Reads a request; returns its header webhook-id. None at the end of the connection.
async fn read(stream: &mut BufReader<TcpStream>) -> Result<Option<String>> {
    let (mut id, mut length, mut line) = (None, 0, String::new());
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        let header = line.trim_end();
        if header.is_empty() {
            break;
        }
        let Some((name, value)) = header.split_once(':') else {
            continue; // the request line
        };
        match &*name.to_ascii_lowercase() {
            "content-length" => length = value.trim().parse()?,
            "webhook-id" => id = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(Some(id.context("a request without webhook-id")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn post(port: u16, id: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("it");
        let text = format!("POST / HTTP/1.1\r\nWebhook-Id: {id}\r\nContent-Length: 2\r\n\r\nhi");
        stream.write_all(text.as_bytes()).await.expect("to write");
        let mut answer = vec![0; 12];
        stream.read_exact(&mut answer).await.expect("an answer");
        String::from_utf8(answer).expect("text")
    }

    #[tokio::test]
    async fn first_round_is_throttled_and_the_second_is_not() -> Result<()> {
        let receiver = Receiver::start(2, 3).await?;
        let port = receiver.port;
        for expected in ["HTTP/1.1 429", "HTTP/1.1 200"] {
            let both = tokio::join!(post(port, "a"), post(port, "b"));
            assert_eq!(both, (expected.to_owned(), expected.to_owned()));
        }
        assert_eq!(post(port, "c").await, "HTTP/1.1 200");
        let requests = receiver.requests();
        assert_eq!(requests.len(), 5);
        assert!(requests.iter().all(|one| one.answered_us >= one.arrived_us));
        Ok(())
    }
}

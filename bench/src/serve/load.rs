//! Requests that change something: single pushes on several connections, and bodies of lines.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;

use super::http::{Answer, Connection};

const PAYLOAD: usize = 100;

/// The body of a single push.
pub(super) fn body() -> String {
    format!(
        "{{\"payload\": \"{}\", \"delay\": \"48h\"}}",
        "x".repeat(PAYLOAD)
    )
}

/// Pushes this number of messages singly, on this number of connections, and returns the time.
/// `method` is PUT with the message's own id, or POST without an id.
pub(super) async fn pushes(
    address: SocketAddr,
    connections: usize,
    pushes: u64,
    prefix: &str,
    method: &'static str,
) -> Result<Duration> {
    let next = Arc::new(AtomicU64::new(0));
    let body = body();
    let (begin, mut tasks) = (Instant::now(), JoinSet::new());
    for _ in 0..connections {
        let (next, prefix, body) = (Arc::clone(&next), prefix.to_owned(), body.clone());
        tasks.spawn(async move {
            let mut connection = Connection::new(address);
            let json = [("content-type", "application/json")];
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= pushes {
                    return anyhow::Ok(());
                }
                let target = match method {
                    "PUT" => format!("/v1/queues/main/messages/{prefix}{number}"),
                    _ => "/v1/queues/main/messages".to_owned(),
                };
                let mut request = connection.head(method, &target, &json, Some(body.len()));
                request.extend_from_slice(body.as_bytes());
                connection.send(&request).await?.expect(&[201])?;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(begin.elapsed())
}

/// A client that sends large bodies to one address.
pub(super) struct Bodies {
    address: SocketAddr,
    target: &'static str,
    media: &'static str,
}

impl Bodies {
    pub(super) fn new(address: SocketAddr, target: &'static str, media: &'static str) -> Self {
        Self {
            address,
            target,
            media,
        }
    }

    pub(super) async fn send(&self, body: &[u8]) -> Result<Answer> {
        let mut connection = Connection::new(self.address);
        let headers = [("content-type", self.media)];
        let head = connection.head("POST", self.target, &headers, Some(body.len()));
        connection.write(&head).await?;
        connection.write(body).await?;
        connection.answer().await
    }
}

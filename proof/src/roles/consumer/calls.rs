//! Sends one HTTP request, on a connection of its own, which the consumer may close at any moment.

use std::time::Duration;

use anyhow::{Result, bail};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Server;

/// The longest answer: 4 MiB of payloads, some of them in base64, and their fields.
const MAX_ANSWER: usize = 16 << 20;

/// When a consumer closes the connection early.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) time: Duration,
    /// After this number of bytes of the body.
    pub(super) bytes: usize,
}

impl Patience {
    pub(super) fn long(time: Duration) -> Self {
        Self {
            time,
            bytes: MAX_ANSWER,
        }
    }
}

/// Sends JSON to a server; returns the status and the body of the answer.
pub(super) async fn post(
    server: &Server,
    path: &str,
    json: String,
    patience: Patience,
) -> Result<(u16, Vec<u8>)> {
    timeout(patience.time, exchange(server, path, json, patience.bytes)).await?
}

async fn exchange(
    server: &Server,
    path: &str,
    json: String,
    bytes: usize,
) -> Result<(u16, Vec<u8>)> {
    let stream = TcpStream::connect(("127.0.0.1", server.port)).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // If this call is dropped, the set closes the connection.
    let mut connections = JoinSet::new();
    connections.spawn(connection);
    let request = Request::post(path)
        .header(HOST, format!("127.0.0.1:{}", server.port))
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(json)))?;
    let response = sender.send_request(request).await?;
    let (status, mut body) = (response.status().as_u16(), response.into_body());
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            whole.extend_from_slice(&data);
        }
        if whole.len() >= bytes {
            bail!("closed after {} bytes", whole.len());
        }
    }
    Ok((status, whole))
}

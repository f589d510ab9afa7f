//! A cheap client of HTTP/1.1: one connection, one request at a time.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The longest head of a response.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// A connection to the server.
pub(super) struct Connection {
    address: SocketAddr,
    stream: Option<TcpStream>,
    /// Bytes that were read and not used yet.
    read: Vec<u8>,
}

/// A response.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

/// The parsed head of a response.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    length: Option<usize>,
    is_chunked: bool,
    closes: bool,
}

impl Connection {
    /// A connection that is opened by the first request.
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            stream: None,
            read: Vec::new(),
        }
    }

    pub(super) async fn get(&mut self, target: &str) -> Result<Answer> {
        self.send(&self.head("GET", target, &[], None)).await
    }

    /// The head of a request, with the length of its body.
    pub(super) fn head(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        length: Option<usize>,
    ) -> Vec<u8> {
        let mut head = format!("{method} {target} HTTP/1.1\r\nhost: {}\r\n", self.address);
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(length) = length {
            head.push_str(&format!("content-length: {length}\r\n"));
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    /// Sends a whole request, and reads the response. Of a stream of events it reads the first
    /// event, and then closes the connection.
    pub(super) async fn send(&mut self, request: &[u8]) -> Result<Answer> {
        self.write(request).await?;
        self.answer().await
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(self.address).await?;
                stream.set_nodelay(true)?;
                self.read.clear();
                self.stream.insert(stream)
            }
        };
        Ok(stream.write_all(bytes).await?)
    }

    pub(super) async fn answer(&mut self) -> Result<Answer> {
        let (head, begin) = loop {
            if let Some(end) = find(&self.read, b"\r\n\r\n") {
                break (parse(&self.read[..end])?, end + 4);
            }
            ensure!(self.read.len() < MAX_HEAD_BYTES, "a head without an end");
            self.more().await?;
        };
        let Head { status, .. } = head;
        if head.is_chunked {
            while find(&self.read[begin..], b"\n\n").is_none() {
                self.more().await?;
            }
            let body = self.read[begin..].to_vec();
            self.close();
            return Ok(Answer { status, body });
        }
        let end = begin + head.length.unwrap_or(0);
        while self.read.len() < end {
            self.more().await?;
        }
        let body = self.read[begin..end].to_vec();
        self.read.drain(..end);
        if head.closes {
            self.close();
        }
        Ok(Answer { status, body })
    }

    /// Reads what arrives, and drops it.
    pub(super) async fn follow(&mut self) -> Result<()> {
        self.read.clear();
        self.more().await
    }

    /// Closes the connection. The next request opens another one.
    fn close(&mut self) {
        self.stream = None;
        self.read.clear();
    }

    async fn more(&mut self) -> Result<()> {
        let stream = self.stream.as_mut().context("no request was sent")?;
        let length = stream.read_buf(&mut self.read).await?;
        ensure!(length > 0, "the server closed the connection");
        Ok(())
    }
}

impl Answer {
    pub(super) fn json(&self) -> Result<serde_json::Value> {
        serde_json::from_slice(&self.body).with_context(|| self.text())
    }

    pub(super) fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        format!(
            "{} {}",
            self.status,
            text.chars().take(500).collect::<String>()
        )
    }

    /// Fails if the response has another status.
    pub(super) fn expect(self, statuses: &[u16]) -> Result<Self> {
        ensure!(statuses.contains(&self.status), "{}", self.text());
        Ok(self)
    }
}

fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes
        .windows(pattern.len())
        .position(|window| window == pattern)
}

fn parse(head: &[u8]) -> Result<Head> {
    let head = std::str::from_utf8(head)?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    let mut parsed = Head {
        status: status.context("no status")?.parse()?,
        length: None,
        is_chunked: false,
        closes: false,
    };
    for line in lines {
        let Some((name, value)) = line.split_once(':') else {
            bail!("no header: {line}");
        };
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        let value = value.trim();
        if is("content-length") {
            parsed.length = Some(value.parse()?);
        }
        parsed.is_chunked |= is("transfer-encoding") && value.eq_ignore_ascii_case("chunked");
        parsed.closes |= is("connection") && value.eq_ignore_ascii_case("close");
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn responses_end_at_their_length_and_streams_after_an_event() -> Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut connection = Connection::new(listener.local_addr()?);
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await?;
            let both = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 204 No\r\n\r\n";
            stream.write_all(both.as_bytes()).await?;
            let events = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\ndata: 1\n\n";
            stream.write_all(events.as_bytes()).await?;
            anyhow::Ok(stream)
        });
        let request = connection.head("GET", "/", &[("a", "b")], Some(0));
        let text = String::from_utf8(request.clone())?;
        assert!(
            text.ends_with("\r\na: b\r\ncontent-length: 0\r\n\r\n"),
            "{text}"
        );
        let answer = connection.send(&request).await?;
        assert_eq!((answer.status, &answer.body[..]), (200, &b"ok"[..]));
        assert_eq!(connection.get("/").await?.status, 204);
        let events = connection.get("/").await?;
        assert!(events.text().contains("data: 1"), "{}", events.text());
        assert!(connection.stream.is_none() && events.expect(&[204]).is_err());
        drop(served.await??);
        Ok(())
    }

    #[test]
    fn head_names_length_and_end_of_the_connection() {
        let head =
            parse(b"HTTP/1.1 503 No\r\ncontent-LENGTH: 7\r\nConnection: Close").expect("a head");
        assert_eq!(
            (head.status, head.length, head.closes),
            (503, Some(7), true)
        );
        assert!(parse(b"HTTP/1.1").is_err() && parse(b"HTTP/1.1 200 OK\r\nx").is_err());
    }
}

//! A server with its Redis, and a client that sends exactly the bytes that a test wants.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dueq::{Client, Queue};
use dueq_serve::{Access, Config, Control, QueuePattern, Role, Server, add_token};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Far longer than any answer takes.
const LIMIT: Duration = Duration::from_secs(60);

/// A running server.
pub(crate) struct Instance {
    pub(crate) address: SocketAddr,
    pub(crate) control: Control,
    pub(crate) client: Client,
    pub(crate) redis: dueq_testkit::Server,
    pub(crate) folder: PathBuf,
    pub(crate) stop: CancellationToken,
    running: Option<JoinHandle<()>>,
    tokens: Vec<(String, String)>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Instance {
    /// A server for everybody on this machine.
    pub(crate) async fn open() -> Result<Self> {
        Self::start(|_, _| Ok(Vec::new())).await
    }

    /// A server with a token for each role, named like it, and one of an operator for `other*` only.
    pub(crate) async fn with_tokens() -> Result<Self> {
        Self::with_tokens_and(|_| {}).await
    }

    pub(crate) async fn with_tokens_and(change: impl FnOnce(&mut Config)) -> Result<Self> {
        Self::start(|config, folder| {
            let path = folder.join("tokens.toml");
            let mut tokens = Vec::new();
            let all = [QueuePattern::all()];
            for role in ["viewer", "producer", "consumer", "operator"] {
                let token = add_token(&path, role, &[parsed(role)], &all)?;
                tokens.push((role.to_owned(), token));
            }
            let others = ["other*".parse().map_err(anyhow::Error::msg)?];
            let token = add_token(&path, "foreigner", &[Role::Operator], &others)?;
            tokens.push(("foreigner".to_owned(), token));
            config.access = Access::Tokens(path);
            change(config);
            Ok(tokens)
        })
        .await
    }

    /// A server whose configuration `change` completes; it returns the tokens that it made.
    pub(crate) async fn start(
        change: impl FnOnce(&mut Config, &Path) -> Result<Vec<(String, String)>>,
    ) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("dueq-test-serve-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder)?;
        let redis = dueq_testkit::Server::start(&[])?;
        let client = Client::connect(&redis.url()).await?;
        let mut config = Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            audit_log: Some(folder.join("audit.ndjson")),
            ..Config::default()
        };
        let tokens = change(&mut config, &folder)?;
        let server = Server::bind(client.clone(), config).await?;
        let (address, control) = (server.address(), server.control());
        let stop = CancellationToken::new();
        let running = tokio::spawn(server.run(stop.clone().cancelled_owned()));
        Ok(Self {
            address,
            control,
            client,
            redis,
            folder,
            stop,
            running: Some(running),
            tokens,
        })
    }

    /// A queue with one message.
    pub(crate) async fn queue(&self, name: &str) -> Result<Queue> {
        let queue = self.client.queue(name)?;
        queue.push("x").id("1").delay(LIMIT).await?;
        Ok(queue)
    }

    /// The header with the token of this name.
    pub(crate) fn bearer(&self, name: &str) -> String {
        format!("Authorization: Bearer {}", self.token(name))
    }

    pub(crate) fn token(&self, name: &str) -> &str {
        let found = self.tokens.iter().find(|(known, _)| known == name);
        &found.expect("a token of that name").1
    }

    /// Sends a request as a usual client does: `line` is method and path.
    pub(crate) async fn ask(&self, line: &str, headers: &[&str], body: &str) -> Result<Answer> {
        let request = request(self.address, line, headers, body);
        self.raw(request.as_bytes()).await
    }

    /// Another server on the same Redis, with the same tokens.
    pub(crate) async fn beside(&self) -> Result<SocketAddr> {
        let config = Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            audit_log: Some(self.folder.join("audit-2.ndjson")),
            access: Access::Tokens(self.folder.join("tokens.toml")),
            ..Config::default()
        };
        let client = Client::connect(&self.redis.url()).await?;
        let server = Server::bind(client, config).await?;
        let address = server.address();
        tokio::spawn(server.run(self.stop.clone().cancelled_owned()));
        Ok(address)
    }

    /// As [`ask`](Instance::ask), with the token of this name and a body of JSON.
    pub(crate) async fn ask_as(&self, name: &str, line: &str, body: &str) -> Result<Answer> {
        let bearer = self.bearer(name);
        self.ask(line, &[&bearer, "Content-Type: application/json"], body)
            .await
    }

    /// Sends these bytes, and returns the first response of all that the server sends until it
    /// closes the connection.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> Result<Answer> {
        Answer::parse(&self.raw_text(bytes).await?)
    }

    pub(crate) async fn raw_text(&self, bytes: &[u8]) -> Result<String> {
        let mut stream = self.connect().await?;
        // The server may answer and close before it has read all.
        let _ = stream.write_all(bytes).await;
        to_end(&mut stream).await
    }

    pub(crate) async fn connect(&self) -> Result<TcpStream> {
        Ok(TcpStream::connect(self.address).await?)
    }

    /// Waits until the server has stopped.
    pub(crate) async fn stopped(&mut self) -> Result<()> {
        let running = self.running.take().context("it runs")?;
        Ok(tokio::time::timeout(LIMIT, running).await??)
    }

    /// The lines of the audit log.
    pub(crate) fn audit(&self) -> Result<Vec<Value>> {
        let text = fs::read_to_string(self.folder.join("audit.ndjson"))?;
        let lines = text.lines().filter(|line| !line.is_empty());
        lines.map(|line| Ok(serde_json::from_str(line)?)).collect()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(running) = &self.running {
            running.abort();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The bytes of a request, after which the server closes the connection.
pub(crate) fn request(address: SocketAddr, line: &str, headers: &[&str], body: &str) -> String {
    let mut head = format!("{line} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    for header in headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    if !body.is_empty() {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    format!("{head}\r\n{body}")
}

/// Reads all that comes until the connection closes.
pub(crate) async fn to_end(stream: &mut TcpStream) -> Result<String> {
    let mut bytes = Vec::new();
    // A reset after the response: the server closed with bytes unread.
    let _ = tokio::time::timeout(LIMIT, stream.read_to_end(&mut bytes))
        .await
        .context("the connection stays open")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn parsed(role: &str) -> Role {
    role.parse().expect("a role")
}

impl Answer {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            bail!("no response: {text:?}");
        };
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1));
        let headers = lines.filter_map(|line| line.split_once(": "));
        Ok(Self {
            status: status.context("a status")?.parse()?,
            headers: headers
                .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
                .collect(),
            body: body.to_owned(),
        })
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.body).with_context(|| format!("JSON, not {self:?}"))
    }

    /// The code of a problem; checks what every problem has.
    pub(crate) fn code(&self) -> Result<String> {
        let problem = self.json()?;
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{self:?}"
        );
        assert_eq!(problem["status"], self.status, "{self:?}");
        let code = problem["code"].as_str().context("a code")?.to_owned();
        let page = problem["type"].as_str().context("a type")?;
        assert!(
            page.ends_with(&format!("docs/guide/http.md#{code}")),
            "{page}"
        );
        for field in ["title", "detail", "applied"] {
            assert!(
                problem[field].as_str().is_some_and(|text| !text.is_empty()),
                "{self:?}"
            );
        }
        assert!(problem["retryable"].is_boolean(), "{self:?}");
        let has_retry = self.header("retry-after").is_some();
        assert_eq!(has_retry, matches!(self.status, 429 | 503), "{self:?}");
        Ok(code)
    }

    /// The status, and the code of the problem.
    pub(crate) fn refusal(&self) -> Result<(u16, String)> {
        Ok((self.status, self.code()?))
    }
}

/// Asserts that a request was refused in this way.
#[macro_export]
macro_rules! assert_refused {
    ($answer:expr, $status:literal, $code:literal $(, $($context:tt)+)?) => {{
        let answer = $answer;
        let refusal = answer.refusal()?;
        assert_eq!((refusal.0, refusal.1.as_str()), ($status, $code), "{answer:?}{}", String::new() $(+ " " + &format!($($context)+))?);
    }};
}

//! A server with its Redis, and a client that sends exactly the bytes that a test gives it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dueq::{Client, Queue};
use dueq_serve::{Access, Config, Control, NamePattern, Role, Server, add_token};
use dueq_testkit::Proxy;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const JSON: &str = "Content-Type: application/json";
/// A time limit that no step exceeds, however slow the machine is.
pub(crate) const LIMIT: Duration = Duration::from_secs(600);
/// The delay of messages that must not become due during a test.
pub(crate) const LATER: Duration = Duration::from_secs(3_600);

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
    /// Starts a server that everybody on this machine may use.
    pub(crate) async fn open() -> Result<Self> {
        Self::start(|_, _| Ok(Vec::new())).await
    }

    /// Starts a server with a token for each role, named like the role, and a token of an operator
    /// for the queues `other*` only.
    pub(crate) async fn with_tokens() -> Result<Self> {
        Self::with_tokens_and(|_| {}).await
    }

    pub(crate) async fn with_tokens_and(change: impl FnOnce(&mut Config)) -> Result<Self> {
        Self::start(|config, folder| {
            let tokens = with_all_tokens(config, folder)?;
            change(config);
            Ok(tokens)
        })
        .await
    }

    /// Starts another server on this instance's Redis. It also has its own Redis, which it does not
    /// use.
    pub(crate) async fn beside(&self) -> Result<Self> {
        Self::before(&self.redis.url()).await
    }

    /// Starts a server that everybody on this machine may use, on the Redis of this URL.
    pub(crate) async fn before(url: &str) -> Result<Self> {
        let unused = dueq_testkit::Server::start(&[])?;
        Self::start_at(unused, url, |_, _| Ok(Vec::new())).await
    }

    /// Starts a server that reaches Redis through a proxy, which can lose replies.
    pub(crate) async fn proxied() -> Result<(Self, Proxy)> {
        let redis = dueq_testkit::Server::start(&[])?;
        let proxy = Proxy::start(redis.port())?;
        let instance = Self::start_at(redis, &proxy.url(), with_all_tokens).await?;
        Ok((instance, proxy))
    }

    /// Starts a server. `change` completes its configuration, and returns the tokens that it made.
    pub(crate) async fn start(
        change: impl FnOnce(&mut Config, &Path) -> Result<Vec<(String, String)>>,
    ) -> Result<Self> {
        Self::start_on(dueq_testkit::Server::start(&[])?, change).await
    }

    /// Like `start`, on this Redis.
    pub(crate) async fn start_on(
        redis: dueq_testkit::Server,
        change: impl FnOnce(&mut Config, &Path) -> Result<Vec<(String, String)>>,
    ) -> Result<Self> {
        let url = redis.url();
        Self::start_at(redis, &url, change).await
    }

    async fn start_at(
        redis: dueq_testkit::Server,
        url: &str,
        change: impl FnOnce(&mut Config, &Path) -> Result<Vec<(String, String)>>,
    ) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("dueq-test-serve-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder)?;
        let client = Client::connect(url).await?;
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

    /// Stops the server, and starts another one with a new client and a new address, which
    /// everybody on this machine may use.
    pub(crate) async fn restart(&mut self) -> Result<()> {
        self.restart_at(&self.redis.url()).await
    }

    /// Like `restart`, but the server reaches Redis through a proxy, which can lose replies.
    pub(crate) async fn restart_behind_a_proxy(&mut self) -> Result<dueq_testkit::Proxy> {
        let proxy = dueq_testkit::Proxy::start(self.redis.port())?;
        self.restart_at(&proxy.url()).await?;
        Ok(proxy)
    }

    async fn restart_at(&mut self, url: &str) -> Result<()> {
        self.stop.cancel();
        self.stopped().await?;
        self.client = Client::connect(url).await?;
        let config = Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            audit_log: Some(self.folder.join("audit.ndjson")),
            ..Config::default()
        };
        let server = Server::bind(self.client.clone(), config).await?;
        (self.address, self.control) = (server.address(), server.control());
        self.stop = CancellationToken::new();
        let running = tokio::spawn(server.run(self.stop.clone().cancelled_owned()));
        self.running = Some(running);
        Ok(())
    }

    /// Creates a queue with one message.
    pub(crate) async fn queue(&self, name: &str) -> Result<Queue> {
        let queue = self.client.queue(name)?;
        queue.push("x").id("1").delay(LATER).await?;
        Ok(queue)
    }

    /// The header with the token of this name.
    pub(crate) fn bearer(&self, name: &str) -> String {
        format!("Authorization: Bearer {}", self.token(name))
    }

    /// All tokens.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().map(|(_, token)| token.as_str())
    }

    pub(crate) fn token(&self, name: &str) -> &str {
        let found = self.tokens.iter().find(|(known, _)| known == name);
        &found.expect("a token of that name").1
    }

    /// Sends a request as a usual client does. `line` has the method and the path.
    pub(crate) async fn ask(&self, line: &str, headers: &[&str], body: &str) -> Result<Answer> {
        let request = request(self.address, line, headers, body);
        self.raw(request.as_bytes()).await
    }

    /// Sends a request without a body and without a token.
    pub(crate) async fn call(&self, line: &str) -> Result<Answer> {
        self.ask(line, &[], "").await
    }

    /// The JSON answer to a request without a body and without a token.
    pub(crate) async fn read(&self, line: &str) -> Result<Value> {
        self.call(line).await?.json()
    }

    pub(crate) async fn read_as(&self, name: &str, line: &str) -> Result<Value> {
        self.ask_as(name, line, "").await?.json()
    }

    pub(crate) async fn status_as(&self, name: &str, line: &str) -> Result<u16> {
        Ok(self.ask_as(name, line, "").await?.status)
    }

    /// Sends a JSON body, without a token.
    pub(crate) async fn send(&self, line: &str, body: &Value) -> Result<Answer> {
        self.ask(line, &[JSON], &body.to_string()).await
    }

    /// Starts another server on this Redis with the same tokens, and returns its address.
    pub(crate) async fn address_beside(&self) -> Result<SocketAddr> {
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

    /// Like [`ask`](Instance::ask), with the token of this name and a JSON body.
    pub(crate) async fn ask_as(&self, name: &str, line: &str, body: &str) -> Result<Answer> {
        let bearer = self.bearer(name);
        self.ask(line, &[&bearer, JSON], body).await
    }

    /// Sends these bytes, reads until the server closes the connection, and returns the first
    /// response.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> Result<Answer> {
        Answer::parse(&self.raw_text(bytes).await?)
    }

    pub(crate) async fn raw_text(&self, bytes: &[u8]) -> Result<String> {
        let mut stream = self.connect().await?;
        // The server may answer and close the connection before it has read everything.
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

/// The bytes of a request that asks the server to close the connection afterwards.
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

/// Makes a tokens file with all tokens of [`Instance::with_tokens`].
fn with_all_tokens(config: &mut Config, folder: &Path) -> Result<Vec<(String, String)>> {
    let path = folder.join("tokens.toml");
    let mut tokens = Vec::new();
    let all = [NamePattern::all()];
    for role in ["viewer", "producer", "consumer", "operator"] {
        let token = add_token(&path, role, &[parsed(role)], &all)?;
        tokens.push((role.to_owned(), token));
    }
    let others = ["other*".parse().map_err(anyhow::Error::msg)?];
    let token = add_token(&path, "foreigner", &[Role::Operator], &others)?;
    tokens.push(("foreigner".to_owned(), token));
    config.access = Access::Tokens(path);
    Ok(tokens)
}

/// Reads until the connection closes.
pub(crate) async fn to_end(stream: &mut TcpStream) -> Result<String> {
    let mut bytes = Vec::new();
    // The connection may be reset after the response: the server closed it with unread bytes.
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

    /// The code of a problem. Asserts what every problem must have.
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

/// Asserts that a request was refused with this status and problem code.
#[macro_export]
macro_rules! assert_refused {
    ($answer:expr, $status:literal, $code:literal $(, $($context:tt)+)?) => {{
        let answer = $answer;
        let refusal = answer.refusal()?;
        assert_eq!((refusal.0, refusal.1.as_str()), ($status, $code), "{answer:?}{}", String::new() $(+ " " + &format!($($context)+))?);
    }};
}

/// Asserts that a value of JSON has these fields with these values.
#[macro_export]
macro_rules! assert_has {
    ($value:expr, $($expected:tt)+) => {{
        let (value, expected) = (&$value, serde_json::json!($($expected)+));
        for (name, expected) in expected.as_object().expect("an object") {
            assert_eq!(&value[name], expected, "{name} of {value}");
        }
    }};
}

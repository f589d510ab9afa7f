//! A server for unit tests: it speaks Redis's protocol on a port of this machine, and answers as
//! the test says.

use std::future::ready;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, mpsc};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// A server that runs until it is dropped.
pub(crate) struct Fake {
    pub(crate) port: u16,
    task: JoinHandle<()>,
}

impl Fake {
    /// A server that is a fit master, and answers nothing but questions about that.
    pub(crate) async fn master() -> Self {
        Self::start(|_, words| ready(usual(&words))).await
    }

    /// Starts a server like [`start`](Self::start), whose `answer` also gets the server's port.
    pub(crate) async fn start_knowing_its_port<F, A>(answer: F) -> Self
    where
        F: Fn(u16, Vec<String>) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Option<String>> + Send + 'static,
    {
        let port = Arc::new(AtomicU16::new(0));
        let known = Arc::clone(&port);
        let answer = move |_, words| answer(known.load(Ordering::Relaxed), words);
        let server = Self::start(answer).await;
        port.store(server.port, Ordering::Relaxed);
        server
    }

    /// Starts a server. `answer` gets the number of the connection, counted from 0, and the words
    /// of a command. It returns the bytes of the reply, or `None` for a command that is never
    /// answered. Commands of one connection are answered in order.
    pub(crate) async fn start<F, A>(answer: F) -> Self
    where
        F: Fn(usize, Vec<String>) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Option<String>> + Send + 'static,
    {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            for number in 0.. {
                let Ok((stream, _)) = listener.accept().await else {
                    return;
                };
                let answer = answer.clone();
                connections.spawn(serve(stream, move |words| answer(number, words)));
            }
        });
        Self { port, task }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Keeps tokio's paused clock from advancing while sockets are busy, until it is dropped.
pub(crate) struct StoppedClock(#[expect(dead_code, reason = "it is dropped")] mpsc::Sender<()>);

impl StoppedClock {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = mpsc::channel();
        // Tokio does not advance a paused clock while a blocking task runs.
        tokio::task::spawn_blocking(move || receiver.recv());
        Self(sender)
    }
}

async fn serve<A: Future<Output = Option<String>>>(
    stream: TcpStream,
    answer: impl Fn(Vec<String>) -> A,
) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let words = command(&mut stream).await?;
        if let Some(reply) = answer(words).await {
            stream.get_mut().write_all(reply.as_bytes()).await.ok()?;
        }
    }
}

/// The words of the next command; `None` once the connection has ended.
async fn command(stream: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
    let mut words = Vec::new();
    for _ in 0..number(stream).await? {
        let mut word = vec![0; number(stream).await? + 2];
        stream.read_exact(&mut word).await.ok()?;
        word.truncate(word.len() - 2);
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
    Some(words)
}

/// The number in a line such as `*3` or `$5`.
async fn number(stream: &mut BufReader<TcpStream>) -> Option<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    line.get(1..)?.trim().parse().ok()
}

/// The reply of a fit master to the commands with which a client connects, subscribes or examines
/// it.
pub(crate) fn usual(words: &[String]) -> Option<String> {
    match words[0].to_uppercase().as_str() {
        "HELLO" => Some("%1\r\n+proto\r\n:3\r\n".to_owned()),
        "CLIENT" | "UNWATCH" => Some("+OK\r\n".to_owned()),
        // Every key exists, except those with `absent` in their names.
        "EXISTS" => Some(format!(":{}\r\n", u8::from(!words[1].contains("absent")))),
        "PING" => Some(
            words
                .get(1)
                .map_or("+PONG\r\n".to_owned(), |word| bulk(word)),
        ),
        "SUBSCRIBE" => {
            let confirmed = (1..).zip(&words[1..]);
            Some(
                confirmed
                    .map(|(count, channel)| {
                        format!(">3\r\n+subscribe\r\n{}:{count}\r\n", bulk(channel))
                    })
                    .collect(),
            )
        }
        "ROLE" => Some("*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n".to_owned()),
        "INFO" => Some(bulk(
            "redis_version:7.0.15\r\naof_enabled:1\r\nmaxmemory_policy:noeviction\r\n",
        )),
        _ => None,
    }
}

pub(crate) fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

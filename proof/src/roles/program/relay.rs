//! Carries the connections of a program to its servers, and records its script calls: each before
//! the server gets it, and its reply before the program gets it. The program gets to know no other
//! address of a server than the one here that leads to it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use dueq::Applied;
use dueq::harness::{Observer, Reply};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::frames::{self, Frame};
use super::ports::Ports;
use super::runs::{Runs, locked};
use crate::history::{Answer, Event};
use crate::recorder::{self, Diary};

pub(super) struct Relay {
    recorder: Box<dyn Observer>,
    runs: Arc<Mutex<Runs>>,
    calls: AtomicU64,
    /// The verbs by the SHA-1 of their scripts.
    verbs: HashMap<String, &'static str>,
    ports: Ports,
}

/// A request without a reply.
enum Asked {
    /// The call of a script.
    Script(u64, &'static str),
    /// The reply has the addresses of servers.
    Cluster,
    Other,
}

/// A connection of the program.
struct Carried {
    /// The address of the server.
    server: String,
    waiting: Mutex<VecDeque<Asked>>,
    /// Whether the program subscribes here: then replies and requests do not correspond.
    subscribes: AtomicBool,
}

impl Relay {
    pub(super) fn new(diary: &Diary, is_cluster: bool, runs: Arc<Mutex<Runs>>) -> Result<Self> {
        Ok(Self {
            recorder: Box::new(diary.recorder(is_cluster)),
            runs,
            calls: AtomicU64::new(1),
            verbs: dueq_testkit::scripts::verbs_by_sha()?,
            ports: Ports::default(),
        })
    }

    /// A text in which each address of a server is the one here that leads to it.
    pub(super) fn lead(self: &Arc<Self>, text: &[u8]) -> Result<Vec<u8>> {
        self.ports.lead(text, |listener, server| {
            tokio::spawn(Arc::clone(self).accept(listener, server));
        })
    }

    async fn accept(self: Arc<Self>, listener: TcpListener, server: String) {
        let mut connections = JoinSet::new();
        loop {
            let Ok((client, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            while connections.try_join_next().is_some() {}
            let (relay, server) = (Arc::clone(&self), server.clone());
            connections.spawn(async move {
                if let Ok(stream) = TcpStream::connect(&server).await {
                    let _ = (client.set_nodelay(true), stream.set_nodelay(true));
                    relay.carry(client, stream, server).await;
                }
            });
        }
    }

    /// Copies until one side closes; then closes both.
    async fn carry(self: &Arc<Self>, client: TcpStream, stream: TcpStream, server: String) {
        let carried = Carried {
            server,
            waiting: Mutex::default(),
            subscribes: AtomicBool::new(false),
        };
        let ((from_client, to_client), (from_server, to_server)) =
            (client.into_split(), stream.into_split());
        let request = |frame, bytes: &[u8]| {
            self.request(&carried, frame);
            Ok(bytes.to_vec())
        };
        let reply = |frame, bytes: &[u8]| match self.reply(&carried, frame) {
            true => self.lead(bytes),
            false => Ok(bytes.to_vec()),
        };
        tokio::select! {
            () = pump(from_client, to_server, request) => {}
            () = pump(from_server, to_client, reply) => {}
        }
        let mut waiting = carried
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for asked in waiting.drain(..) {
            if let Asked::Script(call, _) = asked {
                let lost = ("the connection ended".to_owned(), Applied::Unknown);
                self.recorder.done(call, Err(lost));
            }
        }
    }

    fn request(&self, carried: &Carried, frame: Frame) {
        let mut asked = Asked::Other;
        if let Frame::Value(Reply::List(words)) = &frame {
            let words: Vec<&[u8]> = words.iter().filter_map(bytes).collect();
            let name = words.first().map(|name| name.to_ascii_uppercase());
            match name.as_deref() {
                Some(b"CLUSTER") => asked = Asked::Cluster,
                Some(name) if name.ends_with(b"SUBSCRIBE") => {
                    carried.subscribes.store(true, Ordering::Relaxed);
                }
                _ => {
                    if let Some((call, verb)) = self.invoked(&words, &carried.server) {
                        asked = Asked::Script(call, verb);
                    }
                }
            }
        }
        let mut waiting = carried
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(asked);
    }

    /// Records the call of a script, after what the program did before it.
    fn invoked(&self, words: &[&[u8]], server: &str) -> Option<(u64, &'static str)> {
        let [name, script, count, rest @ ..] = words else {
            return None;
        };
        let sha = match &*name.to_ascii_uppercase() {
            b"EVALSHA" => String::from_utf8_lossy(script).into_owned(),
            b"EVAL" => sha1_smol::Sha1::from(script).digest().to_string(),
            _ => return None,
        };
        let verb = *self.verbs.get(&sha)?;
        let count = std::str::from_utf8(count).ok()?.parse().ok()?;
        let (keys, args) = rest.split_at_checked(count)?;
        let meta = String::from_utf8_lossy(keys.last()?).into_owned();
        let queue = meta.strip_prefix("dueq:{")?.strip_suffix("}:meta")?;
        if let Err(error) = locked(&self.runs).read() {
            eprintln!("cannot read what the program told: {error:#}");
            std::process::exit(1);
        }
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        self.recorder.server(call, server);
        self.recorder.invoke(call, verb, queue, args);
        Some((call, verb))
    }

    /// Records the reply. Returns whether it has the addresses of servers.
    fn reply(&self, carried: &Carried, frame: Frame) -> bool {
        let redirects = |error: &str| error.starts_with("MOVED ") || error.starts_with("ASK ");
        let is_redirected = matches!(&frame, Frame::Error(error) if redirects(error));
        if frame == Frame::Push || carried.subscribes.load(Ordering::Relaxed) {
            return is_redirected;
        }
        let mut waiting = carried
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (call, verb) = match waiting.pop_front() {
            Some(Asked::Script(call, verb)) => (call, verb),
            Some(Asked::Cluster) => return true,
            _ => return is_redirected,
        };
        match frame {
            Frame::Value(reply) => {
                let event = recorder::answered(call, verb, "", &reply);
                if let Some(Event::Ok {
                    answer: Answer::Claimed { items, .. },
                    ..
                }) = event
                {
                    locked(&self.runs).granted(items);
                }
                self.recorder.done(call, Ok(&reply));
            }
            // An error within a script may have come after a write: then the checker finds the change
            // of a refused call, and so a fault too many, never one too few.
            Frame::Error(error) => self.recorder.done(call, Err((error, Applied::No))),
            Frame::Push => {}
        }
        is_redirected
    }
}

/// Carries whole frames, each after it was recorded.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    record: impl Fn(Frame, &[u8]) -> Result<Vec<u8>>,
) {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 65_536]);
    loop {
        match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(length) => bytes.extend_from_slice(&buffer[..length]),
        }
        let (mut whole, mut carried) = (0, Vec::new());
        while let Some((frame, length)) = frames::first(&bytes[whole..]) {
            let Ok(recorded) = record(frame, &bytes[whole..whole + length]) else {
                return;
            };
            carried.extend(recorded);
            whole += length;
        }
        if to.write_all(&carried).await.is_err() {
            return;
        }
        bytes.drain(..whole);
    }
}

fn bytes(part: &Reply) -> Option<&[u8]> {
    match part {
        Reply::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Role;

    #[tokio::test]
    async fn a_program_gets_to_know_no_server_itself() -> Result<()> {
        let folder = std::env::temp_dir().join(format!("dueq-relay-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder)?;
        let diary = Diary::begin(&folder.join("a.jsonl"), Role::Worker, "a", true)?;
        let runs = Runs::new(folder.join("a.runs"), "parts", diary.clone())?;
        let relay = Arc::new(Relay::new(&diary, true, Arc::new(Mutex::new(runs)))?);
        let server = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = server.local_addr()?.to_string();
        let led = String::from_utf8(relay.lead(address.as_bytes())?)?;
        let mut client = TcpStream::connect(&led).await?;
        let (mut server, _) = server.accept().await?;
        for (request, reply, expected) in [
            ("CLUSTER", "+ADDRESS", &led),
            ("BLPOP", "-ASK 7 ADDRESS", &led),
            ("GET", "+ADDRESS", &address),
            // From here on the connection subscribes.
            ("SSUBSCRIBE", "-MOVED 7 ADDRESS", &led),
        ] {
            let request = format!("*1\r\n${}\r\n{request}\r\n", request.len());
            client.write_all(request.as_bytes()).await?;
            let mut sent = vec![0; request.len()];
            server.read_exact(&mut sent).await?;
            assert_eq!(String::from_utf8(sent)?, request);
            let reply = format!("{reply}\r\n");
            server
                .write_all(reply.replace("ADDRESS", &address).as_bytes())
                .await?;
            let expected = reply.replace("ADDRESS", expected);
            let mut got = vec![0; expected.len()];
            client.read_exact(&mut got).await?;
            assert_eq!(String::from_utf8(got)?, expected);
        }
        std::fs::remove_dir_all(folder)?;
        Ok(())
    }
}

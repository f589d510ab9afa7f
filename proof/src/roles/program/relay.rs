//! Carries the connections of a program to the server, and records its script calls: each before
//! the server gets it, and its reply before the program gets it.

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
use super::runs::{Runs, locked};
use crate::history::{Answer, Event};
use crate::recorder::{self, Diary};

pub(super) struct Relay {
    recorder: Box<dyn Observer>,
    runs: Arc<Mutex<Runs>>,
    calls: AtomicU64,
    /// The verbs by the SHA-1 of their scripts.
    verbs: HashMap<String, &'static str>,
}

/// A connection of the program.
#[derive(Default)]
struct Carried {
    /// For each request without a reply its call, if it is one of a script.
    waiting: Mutex<VecDeque<Option<(u64, &'static str)>>>,
    /// Whether the program subscribes here: then replies and requests do not correspond.
    subscribes: AtomicBool,
}

impl Relay {
    pub(super) fn new(diary: &Diary, runs: Arc<Mutex<Runs>>) -> Result<Self> {
        Ok(Self {
            recorder: Box::new(diary.recorder(false)),
            runs,
            calls: AtomicU64::new(1),
            verbs: dueq_testkit::scripts::verbs_by_sha()?,
        })
    }

    pub(super) async fn accept(self: Arc<Self>, listener: TcpListener, server: String) {
        let mut connections = JoinSet::new();
        loop {
            let Ok((client, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            while connections.try_join_next().is_some() {}
            let (relay, server) = (Arc::clone(&self), server.clone());
            connections.spawn(async move {
                if let Ok(server) = TcpStream::connect(server).await {
                    let _ = (client.set_nodelay(true), server.set_nodelay(true));
                    relay.carry(client, server).await;
                }
            });
        }
    }

    /// Copies until one side closes; then closes both.
    async fn carry(&self, client: TcpStream, server: TcpStream) {
        let carried = Carried::default();
        let ((from_client, to_client), (from_server, to_server)) =
            (client.into_split(), server.into_split());
        tokio::select! {
            () = self.pump(from_client, to_server, |frame| self.request(&carried, frame)) => {}
            () = self.pump(from_server, to_client, |frame| self.reply(&carried, frame)) => {}
        }
        let mut waiting = carried
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for (call, _) in waiting.drain(..).flatten() {
            let lost = ("the connection ended".to_owned(), Applied::Unknown);
            self.recorder.done(call, Err(lost));
        }
    }

    /// Carries whole frames, each after it was recorded.
    async fn pump(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, record: impl Fn(Frame)) {
        let (mut bytes, mut buffer) = (Vec::new(), vec![0; 65_536]);
        loop {
            match from.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(length) => bytes.extend_from_slice(&buffer[..length]),
            }
            let mut whole = 0;
            while let Some((frame, length)) = frames::first(&bytes[whole..]) {
                record(frame);
                whole += length;
            }
            if to.write_all(&bytes[..whole]).await.is_err() {
                return;
            }
            bytes.drain(..whole);
        }
    }

    fn request(&self, carried: &Carried, frame: Frame) {
        let mut call = None;
        if let Frame::Value(Reply::List(words)) = &frame {
            let words: Vec<&[u8]> = words.iter().filter_map(bytes).collect();
            let name = words.first().map(|name| name.to_ascii_uppercase());
            if name.is_some_and(|name| name.ends_with(b"SUBSCRIBE")) {
                carried.subscribes.store(true, Ordering::Relaxed);
            }
            call = self.invoked(&words);
        }
        let mut waiting = carried
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(call);
    }

    /// Records the call of a script, after what the program did before it.
    fn invoked(&self, words: &[&[u8]]) -> Option<(u64, &'static str)> {
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
        self.recorder.invoke(call, verb, queue, args);
        Some((call, verb))
    }

    fn reply(&self, carried: &Carried, frame: Frame) {
        if frame == Frame::Push || carried.subscribes.load(Ordering::Relaxed) {
            return;
        }
        let mut waiting = carried
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(Some((call, verb))) = waiting.pop_front() else {
            return;
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
    }
}

fn bytes(part: &Reply) -> Option<&[u8]> {
    match part {
        Reply::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

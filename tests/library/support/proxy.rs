//! A TCP proxy that loses replies, stops forwarding and drops connections when the test requests
//! it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

pub(crate) struct Proxy {
    address: SocketAddr,
    rules: Arc<Rules>,
    task: JoinHandle<()>,
}

/// One request with these bytes loses its reply and its connection, if the reply has these bytes.
struct Cut {
    request: Vec<u8>,
    reply: Vec<u8>,
}

#[derive(Default)]
struct Rules {
    cut: Mutex<Vec<Cut>>,
    cuts: AtomicU64,
    /// Bytes that identify a request, and a command that the proxy sends once between the server's
    /// reply and the client's read.
    then: Mutex<Option<(Vec<u8>, Vec<String>)>>,
    port: u16,
    /// Bytes that identify a request. While they are set, such a request stops its connection in
    /// both directions.
    stalled: watch::Sender<Option<Vec<u8>>>,
    /// How many requests were stopped by `stalled`.
    stalls: AtomicU64,
    /// Whether the proxy forwards no bytes in either direction.
    silent: AtomicBool,
    /// Whether the proxy forwards no replies. A connection that missed one never gets another.
    mute: AtomicBool,
    /// Whether the proxy closes all open and new connections.
    cut_all: watch::Sender<bool>,
    /// The connections accepted before this count never forward another byte.
    forsaken: AtomicU64,
    accepted: AtomicU64,
    /// Whether new connections have to wait.
    shut: watch::Sender<bool>,
}

impl Proxy {
    /// Forwards from its own port to `port`, both on this machine.
    pub(crate) async fn start(port: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let (address, rules) = (
            listener.local_addr()?,
            Arc::new(Rules {
                port,
                ..Rules::default()
            }),
        );
        let task = tokio::spawn(accept(listener, port, Arc::clone(&rules)));
        Ok(Self {
            address,
            rules,
            task,
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// Loses the server's reply to the next call of this script and closes the connection. Two
    /// calls of this method lose the next two replies.
    pub(crate) fn cut_reply_of(&self, script: &str) {
        self.cut_reply_with(script, "");
    }

    /// The same, but for the next reply that has this text: replies before it arrive.
    pub(crate) fn cut_reply_with(&self, script: &str, text: &str) {
        self.rules.add_cut(Cut {
            request: redis::Script::new(script).get_hash().into(),
            reply: text.into(),
        });
    }

    /// Stops each connection at its next call of this script. Other connections continue.
    pub(crate) fn stall_calls_of(&self, script: &str) {
        self.rules.stalled.send_replace(Some(
            redis::Script::new(script).get_hash().as_bytes().to_vec(),
        ));
    }

    /// Releases the stopped connections.
    pub(crate) fn end_stall(&self) {
        self.rules.stalled.send_replace(None);
    }

    /// Sends `words` to the server between the next call of this script and its reply, on a
    /// separate connection.
    pub(crate) fn after_call_of(&self, script: &str, words: &[&str]) {
        let sha = redis::Script::new(script).get_hash().as_bytes().to_vec();
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        *self
            .rules
            .then
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some((sha, words));
    }

    /// Number of requests that were stopped so far.
    pub(crate) fn stalls(&self) -> u64 {
        self.rules.stalls.load(Ordering::SeqCst)
    }

    /// Number of lost replies so far.
    pub(crate) fn cuts(&self) -> u64 {
        self.rules.cuts.load(Ordering::SeqCst)
    }

    /// From now on, the proxy accepts connections but forwards nothing.
    pub(crate) fn fall_silent(&self) {
        self.rules.silent.store(true, Ordering::SeqCst);
    }

    /// Forward again, on new connections.
    pub(crate) fn end_silence(&self) {
        self.forsake_open_connections();
        self.rules.silent.store(false, Ordering::SeqCst);
    }

    /// From now on, forward calls and lose their replies.
    pub(crate) fn mute(&self) {
        self.rules.mute.store(true, Ordering::SeqCst);
    }

    /// Forward replies again, on connections that have missed none.
    pub(crate) fn unmute(&self) {
        self.rules.mute.store(false, Ordering::SeqCst);
    }

    /// From now on, close all connections.
    pub(crate) fn cut_all(&self) {
        self.rules.cut_all.send_replace(true);
    }

    pub(crate) fn end_cut(&self) {
        self.rules.cut_all.send_replace(false);
    }

    /// From now on, new connections wait until `let_in`; open ones continue.
    pub(crate) fn shut(&self) {
        self.rules.shut.send_replace(true);
    }

    pub(crate) fn let_in(&self) {
        self.rules.shut.send_replace(false);
    }

    /// Open connections stay open but never forward another byte. New connections work.
    pub(crate) fn forsake_open_connections(&self) {
        self.rules
            .forsaken
            .store(self.rules.accepted.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, port: u16, rules: Arc<Rules>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let rules = Arc::clone(&rules);
        let number = rules.accepted.fetch_add(1, Ordering::SeqCst);
        connections.spawn(async move {
            let _ = rules.shut.subscribe().wait_for(|shut| !shut).await;
            if let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await {
                // Each side only sees a closed connection, so ignore the error.
                let _ = carry(client, server, number, &rules).await;
            }
        });
    }
}

async fn carry(
    mut client: TcpStream,
    mut server: TcpStream,
    number: u64,
    rules: &Rules,
) -> std::io::Result<()> {
    let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
    let mut cut_all = rules.cut_all.subscribe();
    let mut is_mute = false;
    loop {
        let (request, length) = tokio::select! {
            _ = cut_all.wait_for(|cut| *cut) => return Ok(()),
            read = client.read(&mut up) => (true, read?),
            read = server.read(&mut down) => (false, read?),
        };
        if length == 0 {
            return Ok(());
        }
        if rules.blocks(number) {
            continue;
        }
        if request {
            let request = &up[..length];
            let is_of = |sha: &Vec<u8>| has(request, sha);
            if rules.stalled.borrow().as_ref().is_some_and(is_of) {
                rules.stalls.fetch_add(1, Ordering::SeqCst);
            }
            let _ = rules
                .stalled
                .subscribe()
                .wait_for(|sha| !sha.as_ref().is_some_and(is_of))
                .await;
            let cut = rules.take_cut(&up[..length]);
            server.write_all(&up[..length]).await?;
            if let Some(words) = rules.takes_command(&up[..length]) {
                let read = server.read(&mut down).await?;
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                dueq_testkit::command(rules.port, &words).map_err(std::io::Error::other)?;
                client.write_all(&down[..read]).await?;
            }
            if let Some(cut) = cut {
                let read = server.read(&mut down).await?;
                if has(&down[..read], &cut.reply) {
                    rules.cuts.fetch_add(1, Ordering::SeqCst);
                    return Ok(());
                }
                rules.add_cut(cut);
                client.write_all(&down[..read]).await?;
            }
        } else {
            is_mute |= rules.mute.load(Ordering::SeqCst);
            if !is_mute {
                client.write_all(&down[..length]).await?;
            }
        }
    }
}

impl Rules {
    fn blocks(&self, number: u64) -> bool {
        self.silent.load(Ordering::SeqCst) || number < self.forsaken.load(Ordering::SeqCst)
    }

    fn takes_command(&self, request: &[u8]) -> Option<Vec<String>> {
        let mut then = self.then.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = then.take_if(|(sha, _)| has(request, sha));
        taken.map(|(_, words)| words)
    }

    fn add_cut(&self, cut: Cut) {
        let mut cuts = self.cut.lock().unwrap_or_else(PoisonError::into_inner);
        cuts.push(cut);
    }

    fn take_cut(&self, request: &[u8]) -> Option<Cut> {
        let mut cuts = self.cut.lock().unwrap_or_else(PoisonError::into_inner);
        let first = cuts.iter().position(|cut| has(request, &cut.request));
        first.map(|first| cuts.remove(first))
    }
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    part.is_empty() || bytes.windows(part.len()).any(|window| window == part)
}

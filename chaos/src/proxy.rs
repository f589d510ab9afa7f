//! A TCP proxy before the server, one for each process, that can be told to do what networks do.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// What it does with what comes in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    Pass,
    /// Each piece waits for so many ms.
    Delay(Range<u64>),
    /// A connection is closed after it has carried so many bytes in the one direction.
    Cut(Direction, u64),
    /// Connections stay open, and nothing passes on in either direction. Those that were hit never pass anything again:
    /// what is missing from a stream does not come back.
    HalfOpen,
    /// The same in one direction.
    Drop(Direction),
    /// Nobody is let through, as if there were no server.
    Away,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Requests,
    Replies,
}

#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    mode: watch::Sender<Mode>,
    /// How often it has done what its mode says: pieces delayed or swallowed, connections cut or refused.
    done: AtomicU64,
}

impl Proxy {
    /// Between a port of its own and `port`, both on this machine.
    pub async fn start(port: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { mode: watch::Sender::new(Mode::Pass), done: AtomicU64::new(0) });
        let task = tokio::spawn(accept(listener, port, Arc::clone(&shared)));
        Ok(Self { address, shared, task })
    }

    pub fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    pub fn set(&self, mode: Mode) {
        self.shared.mode.send_replace(mode);
    }

    pub fn done(&self) -> u64 {
        self.shared.done.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, port: u16, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        // A failed accept is the client's concern, unless there are no descriptors left: then it is tried again.
        let Ok((client, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        if *shared.mode.borrow() == Mode::Away {
            shared.done.fetch_add(1, Ordering::SeqCst);
            continue;
        }
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            if let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await {
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                carry(client, server, &shared).await;
            }
        });
    }
}

/// Until one side closes, or the connection is cut; then both are closed.
async fn carry(client: TcpStream, server: TcpStream, shared: &Shared) {
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        () = pump(from_client, to_server, Direction::Requests, shared) => {}
        () = pump(from_server, to_client, Direction::Replies, shared) => {}
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, direction: Direction, shared: &Shared) {
    let (mut modes, mut buffer) = (shared.mode.subscribe(), vec![0; 65_536]);
    // Bytes since the present mode began; whether it is deaf for ever.
    let (mut carried, mut deaf) = (0_u64, false);
    let mut mode = modes.borrow_and_update().clone();
    loop {
        let length = tokio::select! {
            biased;
            changed = modes.changed() => {
                if changed.is_err() {
                    return;
                }
                mode = modes.borrow_and_update().clone();
                carried = 0;
                if mode == Mode::Away {
                    return;
                }
                // A blocked or listening connection that is idle now is dead all the same.
                deaf |= mode == Mode::HalfOpen;
                continue;
            }
            read = from.read(&mut buffer) => match read {
                Ok(0) | Err(_) => return,
                Ok(length) => length,
            }
        };
        carried += u64::try_from(length).unwrap_or(0);
        let mut passing = length;
        match &mode {
            Mode::Delay(range) => {
                shared.done.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(fastrand::u64(range.clone()))).await;
            }
            Mode::Cut(cut, limit) if *cut == direction && carried > *limit => {
                passing = length.saturating_sub(usize::try_from(carried - limit).unwrap_or(length));
            }
            Mode::Drop(dropped) => deaf |= *dropped == direction,
            Mode::HalfOpen => deaf = true,
            _ => {}
        }
        if deaf {
            shared.done.fetch_add(1, Ordering::SeqCst);
            continue;
        }
        if to.write_all(&buffer[..passing]).await.is_err() {
            return;
        }
        if passing < length {
            shared.done.fetch_add(1, Ordering::SeqCst);
            return;
        }
    }
}

//! A TCP proxy between one process and a server. It can delay, cut and drop data.

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

use crate::faults::rights;

/// What the proxy does with the data that it receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    Pass,
    /// Delays each piece by a number of ms from this range.
    Delay(Range<u64>),
    /// Closes a connection after it has carried this number of bytes in this direction.
    Cut(Direction, u64),
    /// Keeps connections open, and carries nothing in either direction. An affected connection
    /// stays silent forever, because bytes are missing from its stream.
    HalfOpen,
    /// Carries nothing in this direction; else like `HalfOpen`.
    Drop(Direction),
    /// Refuses every connection, as if no server listened.
    Away,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Requests,
    Replies,
}

/// The destination port and the mode of the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Way {
    port: u16,
    mode: Mode,
}

#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    usual: Mode,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    way: watch::Sender<Way>,
    /// How often the mode took effect: pieces delayed or dropped, connections cut or refused.
    done: AtomicU64,
}

impl Proxy {
    /// Starts a proxy from a new port to `port`, both on this machine. `usual` is its mode while no
    /// fault is active.
    pub async fn start(port: u16, usual: Mode) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let way = watch::Sender::new(Way {
            port,
            mode: usual.clone(),
        });
        let shared = Arc::new(Shared {
            way,
            done: AtomicU64::new(0),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self {
            address,
            usual,
            shared,
            task,
        })
    }

    /// The URL of the server behind the proxy, with the user of the workload.
    pub fn url(&self) -> String {
        format!("redis://{}{}/", rights::IN_URL, self.address)
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn set(&self, mode: Mode) {
        self.shared.way.send_modify(|way| way.mode = mode);
    }

    pub fn usual(&self) -> Mode {
        self.usual.clone()
    }

    /// Changes the destination port, and closes connections to the old one.
    pub fn lead_to(&self, port: u16) {
        self.shared
            .way
            .send_if_modified(|way| std::mem::replace(&mut way.port, port) != port);
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

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        // A failed accept concerns one client, or no file descriptors are left: pause, then go on.
        let Ok((client, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        let Way { port, mode } = shared.way.borrow().clone();
        if mode == Mode::Away {
            shared.done.fetch_add(1, Ordering::SeqCst);
            continue;
        }
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            if let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await {
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                carry(client, server, port, &shared).await;
            }
        });
    }
}

/// Copies until one side closes or the connection is cut; then closes both.
async fn carry(client: TcpStream, server: TcpStream, port: u16, shared: &Shared) {
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    tokio::select! {
        () = pump(from_client, to_server, Direction::Requests, port, shared) => {}
        () = pump(from_server, to_client, Direction::Replies, port, shared) => {}
    }
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    direction: Direction,
    port: u16,
    shared: &Shared,
) {
    let (mut ways, mut buffer) = (shared.way.subscribe(), vec![0; 65_536]);
    // The bytes carried since the present mode began; and whether this connection drops everything
    // forever.
    let (mut carried, mut deaf) = (0_u64, false);
    let mut mode = match ways.borrow_and_update().clone() {
        way if way.port != port || way.mode == Mode::Away => return,
        way => way.mode,
    };
    loop {
        let length = tokio::select! {
            biased;
            changed = ways.changed() => {
                if changed.is_err() {
                    return;
                }
                let way = ways.borrow_and_update().clone();
                if way.port != port || way.mode == Mode::Away {
                    return;
                }
                (mode, carried) = (way.mode, 0);
                // Also an idle connection that blocks or listens becomes silent.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts one connection and sends a byte.
    async fn greet(listener: &TcpListener, byte: u8) -> Result<TcpStream> {
        let (mut stream, _) = listener.accept().await?;
        stream.write_all(&[byte]).await?;
        Ok(stream)
    }

    #[tokio::test]
    async fn a_new_port_closes_connections_to_the_old_one() -> Result<()> {
        let (one, other) = (
            TcpListener::bind(("127.0.0.1", 0)).await?,
            TcpListener::bind(("127.0.0.1", 0)).await?,
        );
        let proxy = Proxy::start(one.local_addr()?.port(), Mode::Pass).await?;
        let mut first = TcpStream::connect(("127.0.0.1", proxy.port())).await?;
        let _held = greet(&one, b'1').await?;
        assert_eq!(first.read_u8().await?, b'1');
        // Leading to the present port again changes nothing.
        proxy.lead_to(one.local_addr()?.port());
        proxy.lead_to(other.local_addr()?.port());
        assert_eq!(first.read(&mut [0]).await?, 0, "closed");
        let mut second = TcpStream::connect(("127.0.0.1", proxy.port())).await?;
        let _held = greet(&other, b'2').await?;
        assert_eq!(second.read_u8().await?, b'2');
        Ok(())
    }
}

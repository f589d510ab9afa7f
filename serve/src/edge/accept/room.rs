//! Limits the number of connections. If a new one finds no room, the server closes a connection
//! that has no request of a known caller: otherwise silent connections, which cost an attacker
//! nothing, would keep others out.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use crate::edge::accept::timed::Phase;

/// How long to wait for a connection to close, before another one is closed too: the first may have
/// received a request.
const AGAIN: Duration = Duration::from_millis(100);

/// The open connections of a server.
pub(super) struct Room {
    permits: Arc<Semaphore>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    connections: BTreeMap<u64, (IpAddr, Phase, Arc<Notify>)>,
}

/// The permit of one open connection.
pub(super) struct Place {
    room: Arc<Room>,
    number: u64,
    pub(super) phase: Phase,
    close: Arc<Notify>,
    _permit: OwnedSemaphorePermit,
}

impl Room {
    pub(super) fn new(max_connections: usize) -> Arc<Self> {
        Arc::new(Self {
            permits: Arc::new(Semaphore::new(max_connections)),
            open: Mutex::default(),
        })
    }

    /// Waits for room for a connection of this peer. It takes long only while every connection has
    /// a request.
    pub(super) async fn place(self: &Arc<Self>, peer: IpAddr) -> Place {
        loop {
            let acquiring = Arc::clone(&self.permits).acquire_owned();
            if self.permits.available_permits() == 0 {
                self.close_one();
            }
            if let Ok(Ok(permit)) = timeout(AGAIN, acquiring).await {
                return self.take(peer, permit);
            }
        }
    }

    fn take(self: &Arc<Self>, peer: IpAddr, permit: OwnedSemaphorePermit) -> Place {
        let (phase, close) = (Phase::default(), Arc::new(Notify::new()));
        let mut open = self.open();
        let number = open.next;
        open.next += 1;
        let connection = (origin(peer), phase.clone(), Arc::clone(&close));
        open.connections.insert(number, connection);
        Place {
            room: Arc::clone(self),
            number,
            phase,
            close,
            _permit: permit,
        }
    }

    /// Closes a connection that has no request. It belongs to the peer with the most such
    /// connections, and has been without a request for the longest time.
    fn close_one(&self) {
        let open = self.open();
        let mut quiet: HashMap<IpAddr, (usize, Instant, &Notify)> = HashMap::new();
        for (peer, phase, close) in open.connections.values() {
            let Some(since) = phase.quiet_since() else {
                continue;
            };
            let of_peer = quiet.entry(*peer).or_insert((0, since, close));
            of_peer.0 += 1;
            if since < of_peer.1 {
                (of_peer.1, of_peer.2) = (since, close);
            }
        }
        let most = quiet
            .values()
            .max_by_key(|(count, since, _)| (*count, since.elapsed()));
        if let Some((_, _, close)) = most {
            close.notify_one();
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Completes when the connection must close to make room, and has no admitted request.
    pub(super) async fn closed(&self) {
        loop {
            self.close.notified().await;
            if !self.phase.is_admitted() {
                return;
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.open().connections.remove(&self.number);
    }
}

/// The address by which connections are counted: an IPv6 network counts as one peer.
fn origin(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => IpAddr::from(((address.to_bits() >> 64) << 64).to_be_bytes()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    async fn is_closed(place: &Place) -> bool {
        timeout(AGAIN, place.closed()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn busiest_peers_oldest_idle_connection_makes_room() {
        let room = Room::new(4);
        let alone = room.place(peer(1)).await;
        let mut many = Vec::new();
        for _ in 0..3 {
            tokio::time::advance(Duration::from_secs(1)).await;
            many.push(room.place(peer(2)).await);
        }
        // The oldest connection of the busiest peer has a request.
        let request = many[0].phase.in_request();
        many[0].phase.admit();
        {
            let mut next = std::pin::pin!(room.place(peer(3)));
            assert!(timeout(AGAIN / 2, &mut next).await.is_err());
            assert!(is_closed(&many[1]).await && !is_closed(&many[2]).await);
            assert!(!is_closed(&alone).await && !is_closed(&many[0]).await);
            drop(many.remove(1));
            drop(next.await);
        }
        let third = room.place(peer(3)).await;
        // Every connection has a request, so the next one waits until a request ends.
        let requests = [&alone, &many[1], &third].map(|place| {
            place.phase.admit();
            place.phase.in_request()
        });
        let mut next = std::pin::pin!(room.place(peer(4)));
        assert!(timeout(AGAIN * 10, &mut next).await.is_err());
        drop(request);
        assert!(timeout(AGAIN * 2, &mut next).await.is_err());
        assert!(is_closed(&many[0]).await);
        drop(requests);
    }

    #[test]
    fn ipv6_network_counts_as_one_peer() {
        let parse = |text: &str| origin(text.parse().expect("an address"));
        assert_eq!(parse("2001:db8::1"), parse("2001:db8::2:0:0:9"));
        assert_ne!(parse("2001:db8::1"), parse("2001:db8:0:1::1"));
        assert_eq!(parse("::ffff:10.0.0.1"), parse("10.0.0.1"));
    }
}

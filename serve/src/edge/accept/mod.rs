//! The accept loop for HTTP/1.1: limits the connections, heads and pauses, and stops without losing
//! a request.

mod connection;
mod gate;
#[cfg(test)]
mod gate_tests;
mod head;
#[cfg(test)]
mod hyper_tests;
mod linger;
mod room;
mod timed;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use timed::{Outbox, Phase};

use crate::edge::Edge;
use crate::edge::accept::connection::Connection;
use crate::edge::accept::room::Room;
use crate::edge::tls::Tls;

/// The grace period: how long running requests may take after the stop.
const GRACE: Duration = Duration::from_secs(30);
/// The pause after a failed accept: it fails if the process has too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// The router and settings with which connections are served.
pub(crate) struct Served {
    pub(crate) router: Router,
    pub(crate) max_connections: usize,
    pub(crate) tls: Option<Arc<Tls>>,
}

/// Accepts connections until `stop` completes. Then waits until all running requests have ended,
/// and for `last`.
pub(crate) async fn run(
    listener: TcpListener,
    served: Served,
    edge: &Arc<Edge>,
    stop: impl Future<Output = ()>,
    last: impl Future<Output = ()>,
) {
    let room = Room::new(served.max_connections);
    let mut accepted = None;
    let (running, late, end) = (
        TaskTracker::new(),
        TaskTracker::new(),
        CancellationToken::new(),
    );
    let connection = |keep_alive| Connection {
        router: served.router.clone(),
        tls: served.tls.clone(),
        end: end.clone(),
        edge: edge.clone(),
        keep_alive,
    };
    tokio::select! {
        () = accept(&listener, &mut accepted, &room, &running, connection(true)) => {}
        () = stop => {}
    }
    edge.life.stop();
    tracing::info!(name: "dueq_serve.stopping", connections = running.len(), "running requests finish");
    running.close();
    let ended = async {
        running.wait().await;
        // Wait for actions whose callers have disconnected. An action can begin an operation.
        edge.actions.close();
        edge.actions.wait().await;
        last.await;
    };
    // Meanwhile accept connections: probes learn that the server is not ready, other requests are
    // refused.
    tokio::select! {
        () = accept(&listener, &mut accepted, &room, &late, connection(false)) => {}
        ended = tokio::time::timeout(GRACE, ended) => if ended.is_err() {
            tracing::warn!(name: "dueq_serve.cut_off", connections = running.len(), "requests ran longer than the grace");
        }
    }
    end.cancel();
    late.close();
    running.wait().await;
    late.wait().await;
}

/// Accepts connections forever. If this future is dropped, `accepted` keeps a connection that
/// waited for room.
async fn accept(
    listener: &TcpListener,
    accepted: &mut Option<(TcpStream, SocketAddr)>,
    room: &Arc<Room>,
    tasks: &TaskTracker,
    connection: Connection,
) {
    loop {
        let peer = match accepted {
            Some((_, peer)) => peer.ip(),
            None => match listener.accept().await {
                Ok(connection) => accepted.insert(connection).1.ip(),
                Err(error) => {
                    tracing::warn!(name: "dueq_serve.accept_failed", ?error, "a connection was not accepted");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            },
        };
        let place = room.place(peer).await;
        if let Some((stream, peer)) = accepted.take() {
            tasks.spawn(connection.clone().serve(stream, peer, place));
        }
    }
}

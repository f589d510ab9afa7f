//! The accept loop: HTTP/1.1 with limits of connections, heads and pauses, and an end without lost
//! requests.

mod connection;
mod gate;
#[cfg(test)]
mod gate_tests;
mod head;
mod linger;
mod timed;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::accept::connection::Connection;
use crate::app::Shared;
use crate::tls::Tls;

/// How long running requests may take after the stop.
const GRACE: Duration = Duration::from_secs(30);
/// The pause after an accept that failed: the process has too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// What the connections are served with.
pub(crate) struct Served {
    pub(crate) router: Router,
    pub(crate) max_connections: usize,
    pub(crate) tls: Option<Arc<Tls>>,
}

/// Accepts connections until `stop`, and then until all requests that ran have ended.
pub(crate) async fn run(
    listener: TcpListener,
    served: Served,
    app: &Shared,
    stop: impl Future<Output = ()>,
) {
    let room = Arc::new(Semaphore::new(served.max_connections));
    let (running, late, end) = (
        TaskTracker::new(),
        TaskTracker::new(),
        CancellationToken::new(),
    );
    let connection = |keep_alive| Connection {
        router: served.router.clone(),
        tls: served.tls.clone(),
        end: end.clone(),
        app: app.clone(),
        keep_alive,
    };
    tokio::select! {
        () = accept(&listener, &room, &running, connection(true)) => {}
        () = stop => {}
    }
    app.life.stop();
    tracing::info!(name: "dueq_serve.stopping", connections = running.len(), "running requests finish");
    running.close();
    let ended = async {
        running.wait().await;
        // Those whose callers left. One of them can begin an operation.
        app.actions.close();
        app.actions.wait().await;
        // Each stops after its step, and writes its line to the audit log.
        app.operations.ended().await;
    };
    // Probes still learn that the server is not ready; other requests are refused.
    tokio::select! {
        () = accept(&listener, &room, &late, connection(false)) => {}
        ended = tokio::time::timeout(GRACE, ended) => if ended.is_err() {
            tracing::warn!(name: "dueq_serve.cut_off", connections = running.len(), "requests ran longer than the grace");
        }
    }
    end.cancel();
    late.close();
    running.wait().await;
    late.wait().await;
}

/// Accepts connections for ever, while there is room.
async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
    tasks: &TaskTracker,
    connection: Connection,
) {
    loop {
        let Ok(permit) = Arc::clone(room).acquire_owned().await else {
            return; // nobody closes it
        };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let connection = connection.clone();
                tasks.spawn(async move {
                    connection.serve(stream, peer).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(name: "dueq_serve.accept_failed", ?error, "a connection was not accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

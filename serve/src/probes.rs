//! Serves `/metrics`, `/healthz` and `/readyz` of a worker, for `dueq work --metrics`.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use dueq::metrics::PrometheusText;
use dueq::{Client, Queue, WorkerHandle};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::edge::accept::{self, Served};
use crate::edge::auth::{Hosts, LocalAddr};
use crate::edge::config::Config;
use crate::edge::everywhere::everywhere;
use crate::edge::problem::{Code, Problem};
use crate::edge::{Edge, Error};
use crate::mount::hardened;
use crate::routes::{Health, OK};
use crate::work::metrics::Process;

/// Prometheus and some probes. A new connection closes an earlier one, so that slow readers neither
/// keep it out nor hold more pages than this.
const MAX_CONNECTIONS: usize = 8;

/// The probes and metrics of a worker. They are served until the last clone is dropped.
#[derive(Clone)]
pub struct Probes(Arc<Inner>);

struct Inner {
    address: SocketAddr,
    state: Arc<Observed>,
    server: tokio::task::AbortHandle,
}

/// What the pages show.
struct Observed {
    edge: Arc<Edge>,
    worker: OnceLock<(Client, WorkerHandle)>,
    stopping: CancellationToken,
}

impl Probes {
    /// Listens, and serves in a task. The worker is not ready until [`observe`](Probes::observe), and
    /// once `stopping` is cancelled.
    ///
    /// # Errors
    /// [`Error::Io`] if the address is in use.
    pub async fn listen(address: SocketAddr, stopping: CancellationToken) -> Result<Self, Error> {
        let unbound = |error| Error::io(format!("cannot listen on {address}"), error);
        let listener = TcpListener::bind(address).await.map_err(unbound)?;
        let address = listener.local_addr().map_err(unbound)?;
        let edge = Arc::new(Edge::open(
            &Config::default(),
            Hosts::of_server(None, false),
        )?);
        let state = Arc::new(Observed {
            edge: Arc::clone(&edge),
            worker: OnceLock::new(),
            stopping,
        });
        let served = Served {
            router: router(&state),
            max_connections: MAX_CONNECTIONS,
            tls: None,
        };
        let server = tokio::spawn(async move {
            let never = std::future::pending::<()>;
            accept::run(listener, served, &edge, never(), never()).await;
        });
        Ok(Self(Arc::new(Inner {
            address,
            state,
            server: server.abort_handle(),
        })))
    }

    /// The address on which it listens. If the port was 0, the system has chosen one.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Shows this worker, a worker of this client. Later calls change nothing.
    pub fn observe(&self, client: &Client, worker: &WorkerHandle) {
        let observed = (client.clone(), worker.clone());
        let _ = self.0.state.worker.set(observed);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn router(state: &Arc<Observed>) -> Router {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .layer(from_fn_with_state(Arc::clone(state), checked))
        .route("/healthz", get(async || OK))
        .route("/readyz", get(readyz));
    everywhere(router)
        .layer(map_response(hardened))
        .with_state(Arc::clone(state))
}

/// Refuses a request that came over loopback and names another host: a page of another site can
/// reach loopback by a name of its own. From other machines any name is right, as there is no list of
/// those that lead here.
async fn checked(State(state): State<Arc<Observed>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let local = parts.extensions.get::<LocalAddr>();
    if local.is_none_or(|local| local.0.ip().to_canonical().is_loopback())
        && let Err(problem) = state.edge.hosts.check(&parts)
    {
        return problem.into_response();
    }
    next.run(Request::from_parts(parts, body)).await
}

/// Redis may be away at the start for a long time: the worker is then alive, and not ready.
async fn readyz(State(state): State<Arc<Observed>>) -> Result<Json<Health>, Problem> {
    if state.stopping.is_cancelled() {
        let detail = "the worker finishes its handlers";
        return Err(Problem::new(Code::Stopping, detail));
    }
    match state.worker.get() {
        Some((_, worker)) if worker.health().is_ready() => Ok(OK),
        _ => {
            let detail = "the worker has no answer of Redis for each of its queues, or for its scan for queues";
            Err(Problem::new(Code::RedisUnavailable, detail))
        }
    }
}

async fn metrics(State(state): State<Arc<Observed>>) -> Response {
    let mut text = PrometheusText::default();
    if let Some((client, worker)) = state.worker.get() {
        let health = worker.health();
        Process::new(client, health.is_ready(), Some(health.free_handlers())).write(&mut text);
        let names = health.queues().map(|(name, _)| client.queue(name));
        // The names are those of queues that the worker attends, so none is refused.
        let queues: Vec<Queue> = names.filter_map(Result::ok).collect();
        text.queues(queues.iter().map(|queue| (queue.name(), queue.metrics())));
    } else {
        let process = Process {
            is_redis_up: false,
            free_handlers: None,
            connections_opened: 0,
        };
        process.write(&mut text);
    }
    (
        [(CONTENT_TYPE, PrometheusText::MEDIA_TYPE)],
        text.into_string(),
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::StatusCode;
    use axum::http::header::HOST;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::time::{Duration, timeout};
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn ninth_connection_is_answered_and_closes_the_first() -> std::io::Result<()> {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let probes = Probes::listen(loopback, CancellationToken::new()).await;
        let address = probes.as_ref().expect("a free port").address();
        let mut connections = Vec::new();
        for _ in 0..9 {
            let mut connection = TcpStream::connect(address).await?;
            connection
                .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                .await?;
            let mut status = [0; 15];
            connection.read_exact(&mut status).await?;
            assert_eq!(&status, b"HTTP/1.1 200 OK");
            connections.push(connection);
        }
        // Without need the server keeps an idle connection for 75 s.
        let mut rest = Vec::new();
        let closed = connections[0].read_to_end(&mut rest);
        let closed = timeout(Duration::from_secs(60), closed).await;
        assert!(closed.is_ok(), "the first is still open");
        Ok(())
    }

    #[tokio::test]
    async fn only_loopback_must_be_named_by_its_address() {
        let state = Arc::new(Observed {
            edge: Arc::new(
                Edge::open(&Config::default(), Hosts::of_server(None, false)).expect("an edge"),
            ),
            worker: OnceLock::new(),
            stopping: CancellationToken::new(),
        });
        for (local, host, status) in [
            ("127.0.0.1:9464", "127.0.0.1:9464", 200),
            ("127.0.0.1:9464", "localhost:9464", 200),
            ("[::ffff:127.0.0.1]:9464", "localhost:9464", 200),
            ("127.0.0.1:9464", "evil.example:9464", 421),
            ("127.0.0.1:9464", "localhost:80", 421),
            ("10.0.0.7:9464", "worker:9464", 200),
        ] {
            let mut request = Request::get("/metrics").header(HOST, host);
            let address = LocalAddr(local.parse().expect("an address"));
            request.extensions_mut().expect("a request").insert(address);
            let request = request.body(Body::empty()).expect("a request");
            let response = router(&state).oneshot(request).await.expect("an answer");
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(response.status(), status, "{local} {host}");
        }
    }
}

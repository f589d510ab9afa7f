//! One connection: HTTP/1.1 by hyper, with the limits of a request.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::HeaderValue;
use axum::http::header::{CONNECTION, TRANSFER_ENCODING};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tower_http::timeout::TimeoutBody;

use crate::edge::Edge;
use crate::edge::accept::gate::{Gate, Refusals};
use crate::edge::accept::head::MAX_HEAD_BYTES;
use crate::edge::accept::room::Place;
use crate::edge::accept::timed::{HEAD, Outbox, Timed};
use crate::edge::auth::LocalAddr;
use crate::edge::body::PAUSE;
use crate::edge::tls::Tls;

/// Once the server stops: how long a new connection may take to send its first request.
const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// What every connection needs to serve requests.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) router: Router,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) edge: Arc<Edge>,
    /// Cancelled when the grace period after the stop is over: then the connection closes.
    pub(super) end: CancellationToken,
    /// Whether the connection may serve more than one request.
    pub(super) keep_alive: bool,
}

impl Connection {
    /// Serves the requests of a connection until it ends.
    pub(super) async fn serve(self, stream: TcpStream, peer: SocketAddr, place: Place) {
        let _open = self.edge.meters.connections.one();
        let Ok(local) = stream.local_addr() else {
            return; // the peer has gone
        };
        // Send small responses at once: Nagle's algorithm would hold them until the peer's
        // acknowledgement.
        let _ = stream.set_nodelay(true);
        let Some(tls) = self.tls.clone() else {
            return self.http(stream, peer, local, place).await;
        };
        let accepted = tokio::select! {
            accepted = tokio::time::timeout(HEAD, tls.acceptor().accept(stream)) => accepted,
            () = self.end.cancelled() => return,
            () = place.closed() => return,
        };
        match accepted {
            Ok(Ok(stream)) => self.http(stream, peer, local, place).await,
            Ok(Err(error)) => {
                tracing::debug!(name: "dueq_serve.connection_failed", ?error, %peer, "no TLS connection");
            }
            Err(_) => {
                tracing::debug!(name: "dueq_serve.connection_failed", %peer, "the TLS handshake took too long");
            }
        }
    }

    async fn http<S>(self, stream: S, peer: SocketAddr, local: SocketAddr, place: Place)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (router, phase, refusals) = (self.router, place.phase.clone(), Refusals::default());
        let outbox = Outbox::default();
        let timed = Timed::new(stream, phase.clone(), outbox.clone());
        let io = TokioIo::new(Gate::new(timed, phase.clone(), refusals.clone()));
        // The server stops: the request that runs is the last one of the connection.
        let stopping = self.edge.life.stopping().clone();
        let begun = CancellationToken::new();
        let first = begun.clone();
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            begun.cancel();
            let in_request = phase.in_request();
            let has_chunks = request.headers().contains_key(TRANSFER_ENCODING);
            let mut request = request.map(|body| Body::new(TimeoutBody::new(PAUSE, body)));
            request.extensions_mut().insert(ConnectInfo(peer));
            request.extensions_mut().insert(LocalAddr(local));
            request.extensions_mut().insert(phase.clone());
            request.extensions_mut().insert(outbox.clone());
            let router = router.clone();
            async move {
                let mut response = router.oneshot(request).await?;
                // The gate does not parse chunks, so it cannot find the head of a next request.
                if has_chunks {
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(CONNECTION, close);
                }
                Ok::<_, Infallible>(response.map(|body| in_request.until_end_of(body)))
            }
        });
        let mut http = http1::Builder::new();
        // The gate limits the size of request heads; this setting limits trailers.
        http.max_header_size(MAX_HEAD_BYTES)
            // `Timed` limits the time of heads. hyper's timer would also close idle connections
            // after that time.
            .header_read_timeout(None)
            .keep_alive(self.keep_alive);
        let mut connection = pin!(http.serve_connection(io, service));
        let served = tokio::select! {
            served = connection.as_mut() => served,
            () = self.end.cancelled() => return,
            () = place.closed() => {
                tracing::debug!(name: "dueq_serve.made_room", %peer, "a connection without a request made room for a new one");
                return;
            }
            () = stopping.cancelled(), if self.keep_alive => {
                // At the stop hyper closes a connection that has read nothing. The first request of
                // a new connection may be on its way, and must get an answer.
                let early = tokio::select! {
                    served = connection.as_mut() => Some(served),
                    () = first.cancelled() => None,
                    () = tokio::time::sleep(FIRST_REQUEST) => None,
                };
                if early.is_none() {
                    connection.as_mut().graceful_shutdown();
                }
                match early {
                    Some(served) => served,
                    None => tokio::select! {
                        served = connection => served,
                        () = self.end.cancelled() => return,
                    },
                }
            }
        };
        if let Some(code) = refusals.last() {
            self.edge.meters.requests.problem(code.word());
        }
        if let Err(error) = served {
            tracing::debug!(name: "dueq_serve.connection_failed", ?error, %peer, "a connection ended with an error");
        }
    }
}

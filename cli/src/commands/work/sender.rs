//! Sends the requests of `--http` over connections that receivers may close at any time.

use std::collections::HashSet;
use std::error::Error;
use std::io;
use std::iter::successors;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::http::Extensions;
use hyper_util::client::legacy::{self, connect::HttpInfo};
use reqwest::{Client, ClientBuilder, Request, Response};

/// Connections that were idle for this time are closed. Many receivers close idle ones after 5 s.
const IDLE: Duration = Duration::from_secs(4);

/// An HTTP client. A receiver may close an idle connection just as the next request is sent. The
/// request then breaks without an answer, and the receiver is not at fault. The client sends such a
/// request once more, on a new connection. The webhook-id makes that safe.
pub(super) struct Sender {
    pooled: Client,
    /// A client that opens a new connection for each request.
    unpooled: Client,
    /// The time limit of a request together with its repetition.
    timeout: Duration,
    /// The local ports of connections that have answered a request. If the system gives such a port
    /// to a new connection, its first request may be repeated too.
    answered: Mutex<HashSet<u16>>,
}

impl Sender {
    pub(super) fn new(
        timeout: Duration,
        configured: impl Fn() -> ClientBuilder,
    ) -> reqwest::Result<Self> {
        let client = || configured().timeout(timeout).pool_idle_timeout(IDLE);
        Ok(Self {
            pooled: client().build()?,
            unpooled: client().pool_max_idle_per_host(0).build()?,
            timeout,
            answered: Mutex::default(),
        })
    }

    pub(super) fn client(&self) -> &Client {
        &self.pooled
    }

    pub(super) async fn send(&self, request: Request) -> reqwest::Result<Response> {
        let (started, again) = (Instant::now(), request.try_clone());
        let error = match self.pooled.execute(request).await {
            Ok(response) => {
                self.has_answered(response.extensions().get());
                return Ok(response);
            }
            Err(error) => error,
        };
        match again.filter(|_| self.broke_when_reused(&error)) {
            Some(mut request) => {
                let left = self.timeout.saturating_sub(started.elapsed());
                *request.timeout_mut() = Some(left);
                self.unpooled.execute(request).await
            }
            None => Err(error),
        }
    }

    fn has_answered(&self, connection: Option<&HttpInfo>) {
        if let Some(connection) = connection {
            let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
            answered.insert(connection.local_addr().port());
        }
    }

    /// Whether the connection ended without an answer, after it had answered an earlier request.
    fn broke_when_reused(&self, error: &reqwest::Error) -> bool {
        let sources = || successors(error.source(), |error| (*error).source());
        let is_end = |error: &(dyn Error + 'static)| {
            let of_http = error.downcast_ref::<hyper::Error>();
            of_http.is_some_and(|error| error.is_incomplete_message() || error.is_canceled())
                || error.is::<io::Error>()
        };
        if error.is_timeout() || error.is_connect() || !sources().any(is_end) {
            return false;
        }
        let client_error = sources().find_map(|error| error.downcast_ref::<legacy::Error>());
        let mut extras = Extensions::new();
        if let Some(connected) = client_error.and_then(legacy::Error::connect_info) {
            connected.get_extras(&mut extras);
        }
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = extras.get::<HttpInfo>();
        connection.is_some_and(|connection| answered.remove(&connection.local_addr().port()))
    }
}

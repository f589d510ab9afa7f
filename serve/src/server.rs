//! A server of its own: listens, serves, and stops without losing a request. Its
//! phases, and why it does not start.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, io};

use axum::Router;
use dueq::Client;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::app::{App, Shared};
use crate::auth::Hosts;
use crate::config::Config;
use crate::mount::routed;
use crate::problem::everywhere;
use crate::tls::Tls;
use crate::{accept, routes};

/// A server that listens. Connections wait until [`run`](Server::run) serves them.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    router: Router,
    max_connections: usize,
    tls: Option<Arc<Tls>>,
    app: Shared,
}

/// Reaches a running server.
#[derive(Clone)]
pub struct Control {
    app: Shared,
    tls: Option<Arc<Tls>>,
}

impl Control {
    /// Reads the tokens file and the certificate again, and opens the audit log again. The server notices a changed
    /// tokens file within a second without this call.
    pub fn reload(&self) {
        if let Some(tokens) = self.app.gate.tokens() {
            tokens.reload();
        }
        self.app.audit.reopen();
        if let Some(tls) = &self.tls {
            tls.reload();
        }
    }
}

impl Server {
    /// Reads the files of the configuration, and listens.
    ///
    /// # Errors
    /// [`Error::Config`] if the configuration lets anybody in from other machines, or is wrong;
    /// [`Error::Io`] if the address is in use.
    pub async fn bind(client: Client, config: Config) -> Result<Self, Error> {
        config.check()?;
        for warning in config.warnings() {
            tracing::warn!(name: "dueq_serve.warning", "{warning}");
        }
        let tls = config.tls.as_ref().map(Tls::open).transpose()?;
        let hosts = Hosts::of_server(config.public_url.clone(), tls.is_some());
        let app = Arc::new(App::new(client, &config, hosts)?);
        let unbound = |error| Error::io(format!("cannot listen on {}", config.listen), error);
        let listener = TcpListener::bind(config.listen).await.map_err(unbound)?;
        let address = listener.local_addr().map_err(unbound)?;
        Ok(Self {
            listener,
            address,
            router: prefixed(&app),
            max_connections: config.max_connections,
            tls: tls.map(Arc::new),
            app,
        })
    }

    /// The address: with port 0 in the configuration, the system chose the port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Reaches the server while it runs.
    pub fn control(&self) -> Control {
        Control {
            app: self.app.clone(),
            tls: self.tls.clone(),
        }
    }

    /// Serves until `stop` completes. Then `/readyz` answers 503, running requests have 30 s to
    /// finish, and new ones are refused. Claims that wait end empty, and granted messages that nobody
    /// received are released, for up to 12 s more.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let served = accept::Served {
            router: self.router,
            max_connections: self.max_connections,
            tls: self.tls,
        };
        accept::run(self.listener, served, &self.app, stop).await;
        self.app.claims.end().await;
    }
}

/// The router below the path of the public URL. Health is at the root, too.
fn prefixed(app: &Shared) -> Router {
    let router = routed(app);
    let prefix = app.hosts.public().map_or("", |url| url.path());
    if prefix.is_empty() {
        return router;
    }
    let (health, _) = routes::health().split_for_parts();
    // `nest` would not match the prefix with a slash, which is the address of the first page.
    Router::new()
        .nest_service(prefix, router)
        .merge(health.with_state(app.clone()))
        .layer(axum::middleware::from_fn(everywhere))
}

/// Why a server did not start, or a token was not added.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The configuration is wrong or incomplete. The text says what is missing.
    Config(String),
    /// The machine refused something: an address, a file.
    Io {
        /// What was refused.
        what: String,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io {
            what: what.into(),
            source,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(text) => f.write_str(text),
            Self::Io { what, source } => write!(f, "{what}: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Config(_) => None,
            Self::Io { source, .. } => Some(source),
        }
    }
}

/// The phases of a server: it runs, then it finishes its requests.
#[derive(Debug, Default)]
pub(crate) struct Life {
    is_stopping: AtomicBool,
    stopping: CancellationToken,
}

impl Life {
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Turns the server not ready, and then ends what waits for the stop.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.stopping.cancel();
    }

    /// Cancelled at the stop: a long poll ends empty then.
    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }
}

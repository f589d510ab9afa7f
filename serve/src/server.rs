//! A server with its own accept loop: listens, serves, and stops without losing a request.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use dueq::Client;
use tokio::net::TcpListener;

use crate::edge::auth::Hosts;
use crate::edge::config::Config;
use crate::edge::everywhere::everywhere;
use crate::edge::tls::Tls;
use crate::edge::{Error, accept};
use crate::mount::routed;
use crate::routes;
use crate::work::{App, Shared};

/// A server that listens. Connections wait until [`run`](Server::run) serves them.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    router: Router,
    max_connections: usize,
    tls: Option<Arc<Tls>>,
    app: Shared,
}

/// Controls a running server from another task.
#[derive(Clone)]
pub struct Control {
    app: Shared,
    tls: Option<Arc<Tls>>,
}

impl Control {
    /// Reads the tokens file and the certificate again, and opens the audit log again. The server
    /// notices a changed tokens file within a second, also without this call. A file that cannot be
    /// used leaves the old one in force, and the log has the reason.
    pub fn reload(&self) {
        if let Some(tokens) = self.app.edge.gate.tokens() {
            tokens.reload();
        }
        self.app.edge.audit.reopen();
        if let Some(tls) = &self.tls {
            tls.reload();
        }
    }
}

impl Server {
    /// Reads the files of the configuration, and listens.
    ///
    /// # Errors
    /// [`Error::Config`] if the configuration is wrong, or would give everybody on other machines
    /// access; [`Error::Io`] if the address is in use.
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

    /// The address on which the server listens. If the configured port is 0, the system has chosen
    /// one.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A handle that controls the server while it runs.
    pub fn control(&self) -> Control {
        Control {
            app: self.app.clone(),
            tls: self.tls.clone(),
        }
    }

    /// Serves until `stop` completes. Then `/readyz` answers 503, new requests are refused, and
    /// running ones have 30 s to finish. Waiting claims end without messages. For up to 12 s more,
    /// granted messages that no caller received are released.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let served = accept::Served {
            router: self.router,
            max_connections: self.max_connections,
            tls: self.tls,
        };
        // A minute can be explained later although nobody looked then.
        self.app.poller.watch();
        // Each operation stops after its current step, and writes a line to the audit log.
        let last = self.app.operations.ended();
        accept::run(self.listener, served, &self.app.edge, stop, last).await;
        self.app.claims.end().await;
    }
}

/// The router below the path of the public URL. The health routes are at the root, too.
fn prefixed(app: &Shared) -> Router {
    let router = routed(app);
    let prefix = app.edge.hosts.public().map_or("", |url| url.path());
    if prefix.is_empty() {
        return router;
    }
    let (health, _) = routes::health().split_for_parts();
    // `nest` does not match the prefix with a trailing slash, which is the address of the first
    // page.
    everywhere(
        Router::new()
            .nest_service(prefix, router)
            .merge(health.with_state(app.clone())),
    )
}

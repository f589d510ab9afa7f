//! A server of its own: listens, serves, and stops without losing a request.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use dueq::Client;
use tokio::net::TcpListener;

use crate::accept;
use crate::app::{App, Shared};
use crate::auth::Hosts;
use crate::config::Config;
use crate::error::Error;
use crate::mount::routed;
use crate::problem::everywhere;
use crate::routes;

/// A server that listens. Connections wait until [`run`](Server::run) serves them.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    router: Router,
    max_connections: usize,
    app: Shared,
}

/// Reaches a running server.
#[derive(Clone)]
pub struct Control(Shared);

impl Control {
    /// Reads the tokens file again, and opens the audit log again. The server notices a changed
    /// tokens file within a second without this call.
    pub fn reload(&self) {
        if let Some(tokens) = self.0.gate.tokens() {
            tokens.reload();
        }
        self.0.audit.reopen();
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
        let hosts = Hosts::of_server(config.public_url.clone());
        let app = Arc::new(App::new(client, &config, hosts)?);
        let unbound = |error| Error::io(format!("cannot listen on {}", config.listen), error);
        let listener = TcpListener::bind(config.listen).await.map_err(unbound)?;
        let address = listener.local_addr().map_err(unbound)?;
        Ok(Self {
            listener,
            address,
            router: prefixed(&app),
            max_connections: config.max_connections,
            app,
        })
    }

    /// The address: with port 0 in the configuration, the system chose the port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Reaches the server while it runs.
    pub fn control(&self) -> Control {
        Control(self.app.clone())
    }

    /// Serves until `stop` completes. Then `/readyz` answers 503, running requests have 30 s to
    /// finish, and new ones are refused.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        accept::run(
            self.listener,
            self.router,
            self.max_connections,
            &self.app,
            stop,
        )
        .await;
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
    Router::new()
        .nest(prefix, router)
        .merge(health.with_state(app.clone()))
        .layer(axum::middleware::from_fn(everywhere))
}

//! Which server to connect to: the one of the URL, or the master that Sentinels name.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redis::aio::MultiplexedConnection;
#[cfg(feature = "tls")]
use redis::{Client, ClientTlsConfig, TlsCertificates};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, PushInfo};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

use crate::error::Error;
#[cfg(feature = "tls")]
use crate::error::{Applied, ErrorKind};
use crate::server::master::Master;
use crate::server::options::ClientOptions;
use crate::server::pool::{Server, at};
use crate::server::sentinel::Sentinels;

/// Finds the server and opens connections to it.
pub(crate) struct Connector {
    location: Location,
    /// How many connections were opened.
    opened: Arc<AtomicU64>,
}

enum Location {
    Fixed(Arc<Server>),
    Sentinelled {
        master: Arc<Master>,
        watch: Mutex<Option<JoinHandle<()>>>,
    },
}

impl Connector {
    /// Reads a URL: `redis://` or `rediss://`, `[USER][:PASSWORD@]HOST[:PORT][/DATABASE]`,
    /// `redis+unix:///PATH`, or `redis+sentinel://` as [`Sentinels::new`] takes it.
    pub(crate) fn new(url: &str, options: &ClientOptions) -> Result<Self, Error> {
        let opened = Arc::default();
        let location = match Sentinels::new(url, |info| prepared(info, options))? {
            None => {
                let info = url.into_connection_info().map_err(|_| bad_url())?;
                Location::Fixed(Arc::new(Server::fixed(prepared(info, options)?, &opened)?))
            }
            Some(sentinels) => {
                let master = Arc::new(Master::new(sentinels, options.accept_unfit, &opened));
                Location::Sentinelled {
                    master,
                    watch: Mutex::new(None),
                }
            }
        };
        Ok(Self { location, opened })
    }

    /// How many connections it has opened, without those to Sentinels.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// A connector for another server with the same user, password and TLS.
    pub(crate) fn elsewhere(&self, host: String, port: u16) -> Result<Self, Error> {
        let opened = Arc::clone(&self.opened);
        let server = Server::fixed(at(self.info(), host, port), &opened)?;
        Ok(Self {
            location: Location::Fixed(Arc::new(server)),
            opened,
        })
    }

    /// User, password, database and TLS, and the address that the URL names.
    pub(crate) fn info(&self) -> &ConnectionInfo {
        match &self.location {
            Location::Fixed(server) => server.client.get_connection_info(),
            Location::Sentinelled { master, .. } => master.sentinels.server(),
        }
    }

    /// The host in the URL.
    pub(crate) fn host(&self) -> String {
        match self.info().addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
            _ => "127.0.0.1".to_owned(),
        }
    }

    /// The address of the server as far as it is known, for messages: without user or password.
    pub(crate) fn address(&self) -> String {
        match &self.location {
            Location::Fixed(server) => server.address.clone(),
            Location::Sentinelled { master, .. } => master.known().map_or_else(
                || master.sentinels.address(),
                |server| server.address.clone(),
            ),
        }
    }

    /// A connection of the pool, and its server.
    pub(crate) async fn pooled(&self) -> Result<(deadpool_redis::Connection, Arc<Server>), Error> {
        let server = self.server().await?;
        Ok((server.pooled().await?, server))
    }

    /// A dedicated connection for blocking calls, and its server.
    pub(crate) async fn dedicated(&self) -> Result<(MultiplexedConnection, Arc<Server>), Error> {
        let server = self.server().await?;
        Ok((server.dedicated().await?, server))
    }

    /// A dedicated connection that sends its pushed messages, and its end, to `sender`; and its
    /// server.
    pub(crate) async fn listening(
        &self,
        sender: UnboundedSender<PushInfo>,
    ) -> Result<(MultiplexedConnection, Arc<Server>), Error> {
        let server = self.server().await?;
        Ok((server.listening(sender).await?, server))
    }

    /// Whether this is still the server to use.
    pub(crate) fn is_current(&self, server: &Arc<Server>) -> bool {
        match &self.location {
            Location::Fixed(_) => true,
            Location::Sentinelled { master, .. } => master
                .known()
                .is_some_and(|known| Arc::ptr_eq(&known, server)),
        }
    }

    /// The server for a new connection: Sentinels are asked each time.
    async fn server(&self) -> Result<Arc<Server>, Error> {
        match &self.location {
            Location::Fixed(server) => Ok(Arc::clone(server)),
            Location::Sentinelled { master, watch } => {
                start(master, watch);
                master.ask().await
            }
        }
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        if let Location::Sentinelled { watch, .. } = &self.location
            && let Some(task) = watch.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            task.abort();
        }
    }
}

/// A task ends with the runtime that it was started on: then the next caller starts another.
fn start(master: &Arc<Master>, watch: &Mutex<Option<JoinHandle<()>>>) {
    let mut watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
    if watch.as_ref().is_none_or(JoinHandle::is_finished) {
        *watch = Some(tokio::spawn(Arc::clone(master).watch()));
    }
}

/// Adds the certificates of the options, and checks that TLS settings and URL fit together.
fn prepared(info: ConnectionInfo, options: &ClientOptions) -> Result<ConnectionInfo, Error> {
    let tls = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
    if tls && !cfg!(feature = "tls") {
        return Err(Error::invalid(
            "a rediss:// URL needs the feature `tls` of the crate dueq",
        ));
    }
    // With `#insecure`, redis-rs would accept any certificate if some crate of the program enabled
    // that.
    if matches!(info.addr(), ConnectionAddr::TcpTls { insecure: true, .. }) {
        return Err(Error::invalid(
            "a URL that ends with #insecure would make TLS accept any certificate: name the server's CA instead (--cacert FILE, \
             ClientOptions::ca_certificates)",
        ));
    }
    if options.want_tls() && !tls {
        return Err(Error::invalid(
            "certificates were given, and the URL is not rediss://: nothing would be encrypted",
        ));
    }
    #[cfg(feature = "tls")]
    if tls {
        // redis-rs uses the process-wide provider, and panics without one if several are compiled
        // in. A provider that the program has installed stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    #[cfg(feature = "tls")]
    let info = with_certificates(info, options)?;
    Ok(info)
}

/// The same with the certificates of the options.
#[cfg(feature = "tls")]
fn with_certificates(
    info: ConnectionInfo,
    options: &ClientOptions,
) -> Result<ConnectionInfo, Error> {
    if !options.want_tls() {
        return Ok(info);
    }
    let marker = b"BEGIN CERTIFICATE";
    // rustls would accept an empty list and then trust no server.
    if options
        .ca_certificates
        .as_ref()
        .is_some_and(|pem| !pem.windows(marker.len()).any(|part| part == marker))
    {
        return Err(Error::invalid(
            "what was given as the CA's certificates holds none in PEM",
        ));
    }
    let client_tls = options.client_certificate.clone();
    let certificates = TlsCertificates {
        client_tls: client_tls.map(|(client_cert, client_key)| ClientTlsConfig {
            client_cert,
            client_key,
        }),
        root_cert: options.ca_certificates.clone(),
    };
    let client = Client::build_with_tls(info, certificates).map_err(|error| {
        let message = format!("the certificates, or the key, cannot be read as PEM: {error}");
        Error::with_source(ErrorKind::InvalidInput, Applied::No, message, error)
    })?;
    Ok(client.get_connection_info().clone())
}

/// The message does not repeat the URL: it may contain a password.
fn bad_url() -> Error {
    Error::invalid(
        "the Redis URL cannot be read; it must look like redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], or rediss:// for TLS, \
         or redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/SERVICE[/DATABASE]",
    )
}

#[cfg(test)]
mod tests;

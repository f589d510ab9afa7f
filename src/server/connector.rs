//! Which server to connect to: the one of the URL, or the master that Sentinels name.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
#[cfg(feature = "tls")]
use redis::{Client, ClientTlsConfig, TlsCertificates};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, PushInfo};
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

use crate::error::{Applied, Error, ErrorKind};
use crate::server::master::Master;
use crate::server::options::ClientOptions;
use crate::server::pool::Server;
use crate::server::sentinel::Sentinels;
use crate::server::slots::Address;
use crate::server::timeouts::{KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, RESPONSE_LIMIT};

/// Finds the server and opens connections to it.
pub(crate) struct Connector {
    location: Location,
    /// How many connections were opened, by this connector and those made from it.
    opened: Arc<AtomicU64>,
    /// The runtime of the connections, if not that of the callers.
    own: Option<OwnRuntime>,
}

#[derive(Clone)]
enum Location {
    Fixed(Arc<Server>),
    Sentinelled(Arc<Sentinelled>),
}

/// Opens a connection. Boxed: keeps the futures of callers shallow, as rustc limits their depth.
type Opening<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// The master of the Sentinels, and the task that follows their decisions.
struct Sentinelled {
    master: Arc<Master>,
    watch: Mutex<Option<JoinHandle<()>>>,
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
                Location::Sentinelled(Arc::new(Sentinelled {
                    master,
                    watch: Mutex::new(None),
                }))
            }
        };
        Ok(Self {
            location,
            opened,
            own: None,
        })
    }

    /// A connector for this node of a cluster.
    pub(crate) fn to(server: &Arc<Server>) -> Self {
        Self {
            opened: Arc::clone(server.opened()),
            location: Location::Fixed(Arc::clone(server)),
            own: None,
        }
    }

    /// A connector for the same server whose connections live on `runtime`, in a pool of their own,
    /// whichever task opens them. Those opened after its end live on the runtime of their callers. It shares the knowledge of the master and the count of
    /// connections.
    pub(crate) fn on_runtime(&self, runtime: Handle) -> Self {
        Self {
            location: self.location.clone(),
            opened: Arc::clone(&self.opened),
            own: Some(OwnRuntime {
                runtime,
                home: Handle::try_current().ok(),
                pool: Mutex::new(None),
            }),
        }
    }

    /// How many connections it has opened, without those to Sentinels.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// User, password, database and TLS, and the address that the URL names.
    pub(crate) fn info(&self) -> &ConnectionInfo {
        match &self.location {
            Location::Fixed(server) => server.client.get_connection_info(),
            Location::Sentinelled(of) => of.master.sentinels.server(),
        }
    }

    /// The address of the server as far as it is known, for messages: without user or password.
    pub(crate) fn address(&self) -> String {
        match &self.location {
            Location::Fixed(server) => server.address.clone(),
            Location::Sentinelled(of) => of.master.known().map_or_else(
                || of.master.sentinels.address(),
                |server| server.address.clone(),
            ),
        }
    }

    /// Whether Sentinels name the server.
    pub(crate) fn is_sentinelled(&self) -> bool {
        matches!(self.location, Location::Sentinelled(_))
    }

    /// Where the server listens; none for a Unix socket.
    pub(crate) fn place(&self) -> Option<Address> {
        Address::of(self.info())
    }

    /// A connection of the pool, and its server.
    pub(crate) async fn pooled(&self) -> Result<(deadpool_redis::Connection, Arc<Server>), Error> {
        let server = self.server().await?;
        let opening = || -> Opening<_> {
            let server = Arc::clone(&server);
            Box::pin(async move { server.pooled().await })
        };
        Ok((self.open(opening).await?, server))
    }

    /// A dedicated connection for blocking calls, and its server.
    pub(crate) async fn dedicated(&self) -> Result<(MultiplexedConnection, Arc<Server>), Error> {
        let server = self.server().await?;
        let opening = || -> Opening<_> {
            let server = Arc::clone(&server);
            Box::pin(async move { server.dedicated().await })
        };
        Ok((self.open(opening).await?, server))
    }

    /// A dedicated connection that sends its pushed messages, and its end, to `sender`; and its
    /// server.
    pub(crate) async fn listening(
        &self,
        sender: UnboundedSender<PushInfo>,
    ) -> Result<(MultiplexedConnection, Arc<Server>), Error> {
        let server = self.server().await?;
        let opening = || -> Opening<_> {
            let (server, sender) = (Arc::clone(&server), sender.clone());
            Box::pin(async move { server.listening(sender).await })
        };
        Ok((self.open(opening).await?, server))
    }

    /// Opens a connection on the connector's own runtime, if it has one: redis-rs spawns the task
    /// behind a connection where the connection is opened. If that runtime has ended, it opens the
    /// connection on the runtime of its caller, so that deliveries can still be settled.
    async fn open<T: Send + 'static>(&self, opening: impl Fn() -> Opening<T>) -> Result<T, Error> {
        let Some(own) = &self.own else {
            return opening().await;
        };
        match own.runtime.spawn(opening()).await {
            Ok(opened) => opened,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => opening().await,
            },
        }
    }

    /// Whether this is still the server to use.
    pub(crate) fn is_current(&self, server: &Arc<Server>) -> bool {
        match &self.location {
            Location::Fixed(own) => own.is_same(server) && !own.is_superseded(),
            Location::Sentinelled(of) => {
                let known = of.master.known();
                known.is_some_and(|known| known.is_same(server))
            }
        }
    }

    /// The server for a new connection: Sentinels are asked each time.
    async fn server(&self) -> Result<Arc<Server>, Error> {
        let server = match &self.location {
            Location::Fixed(server) => Arc::clone(server),
            Location::Sentinelled(of) => {
                let home = self.own.as_ref().and_then(|own| own.home.as_ref());
                of.watch(home);
                of.master.ask().await?
            }
        };
        match &self.own {
            None => Ok(server),
            Some(own) => own.pool_of(&server),
        }
    }
}

/// Where the connections of a connector live, if not on the runtime of its callers.
struct OwnRuntime {
    runtime: Handle,
    /// The runtime that made the connector. It outlives `runtime`, as a rule.
    home: Option<Handle>,
    /// The server that was used last, with a pool whose connections live on `runtime`.
    pool: Mutex<Option<Arc<Server>>>,
}

impl OwnRuntime {
    fn pool_of(&self, server: &Server) -> Result<Arc<Server>, Error> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = pool.as_ref().filter(|known| known.is_same(server)) {
            return Ok(Arc::clone(known));
        }
        Ok(Arc::clone(pool.insert(Arc::new(server.with_own_pool()?))))
    }
}

impl Sentinelled {
    /// Follows the Sentinels' decisions in a task, on `home` if possible. A task ends with its
    /// runtime: then the next caller starts another.
    fn watch(&self, home: Option<&Handle>) {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        if watch.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let started = home.map(|home| home.spawn(Arc::clone(&self.master).watch()));
        // On a runtime that has shut down, the task has ended at once.
        let started = started.filter(|task| !task.is_finished());
        *watch = started.or_else(|| Some(tokio::spawn(Arc::clone(&self.master).watch())));
    }
}

impl Drop for Sentinelled {
    fn drop(&mut self) {
        let watch = self.watch.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = watch.take() {
            task.abort();
        }
    }
}

/// Adds the certificates of the options, and checks that TLS settings and URL fit together.
pub(crate) fn prepared(
    info: ConnectionInfo,
    options: &ClientOptions,
) -> Result<ConnectionInfo, Error> {
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
    // Last: the certificates are added by a client that has settings of its own.
    Ok(info.set_tcp_settings(tcp_settings()))
}

/// Probes keep idle flows alive in firewalls, and end connections whose other side has vanished.
/// What is not delivered within the limit of a call is never delivered: the call was repeated.
fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE);
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    return TcpSettings::default()
        .set_keepalive(keepalive.with_interval(KEEPALIVE_INTERVAL))
        .set_user_timeout(RESPONSE_LIMIT);
    #[cfg(not(any(target_os = "android", target_os = "fuchsia", target_os = "linux")))]
    TcpSettings::default().set_keepalive(keepalive)
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

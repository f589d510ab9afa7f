//! Where the server is: one that stays the same, or whichever Sentinels say is the master.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
#[cfg(feature = "tls")]
use redis::{Client, ClientTlsConfig, TlsCertificates};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, PushInfo};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

use crate::error::Error;
#[cfg(feature = "tls")]
use crate::error::{Applied, ErrorKind};
use crate::protocol::options::ClientOptions;
use crate::protocol::sentinel::Sentinels;
use crate::protocol::target::Target;

/// How long opening a connection may take.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// How long one command may take before its connection is given up. Not less: a claim that is given up leaves what it took
/// without a consumer until the lease runs out, and servers do stall for seconds, on a slow disk or in a fork.
pub(crate) const RESPONSE_LIMIT: Duration = Duration::from_secs(5);
/// How often Sentinels are asked although they said nothing.
const SENTINEL_FLOOR: Duration = Duration::from_secs(1);

/// Finds the server and opens connections to it.
pub(crate) struct Connector {
    place: Place,
}

enum Place {
    Fixed(Arc<Target>),
    Sentinelled { shared: Arc<Shared>, watch: Mutex<Option<JoinHandle<()>>> },
}

/// What is known about the master.
struct Shared {
    sentinels: Sentinels,
    master: Mutex<Option<Arc<Target>>>,
    questions: AtomicU64,
}

impl Connector {
    /// Reads a URL: `redis://` or `rediss://`, `[USER][:PASSWORD@]HOST[:PORT][/DATABASE]`, `redis+unix:///PATH`, or
    /// `redis+sentinel://` as [`Sentinels::new`] takes it.
    pub(crate) fn new(url: &str, options: &ClientOptions) -> Result<Self, Error> {
        let place = match Sentinels::new(url, |info| prepared(info, options))? {
            None => {
                let info = url.into_connection_info().map_err(|_| bad_url())?;
                Place::Fixed(Arc::new(Target::fixed(prepared(info, options)?)?))
            }
            Some(sentinels) => {
                let shared = Shared { sentinels, master: Mutex::new(None), questions: AtomicU64::new(1) };
                Place::Sentinelled { shared: Arc::new(shared), watch: Mutex::new(None) }
            }
        };
        Ok(Self { place })
    }

    /// The same, at another server that takes the same user, password and TLS.
    pub(crate) fn elsewhere(&self, host: String, port: u16) -> Result<Self, Error> {
        Ok(Self { place: Place::Fixed(Arc::new(Target::fixed(at(self.info(), host, port))?)) })
    }

    /// User, password, database and TLS, and the address that the URL names.
    pub(crate) fn info(&self) -> &ConnectionInfo {
        match &self.place {
            Place::Fixed(target) => target.client.get_connection_info(),
            Place::Sentinelled { shared, .. } => shared.sentinels.server(),
        }
    }

    /// The host that it was told to connect to.
    pub(crate) fn host(&self) -> String {
        match self.info().addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
            _ => "127.0.0.1".to_owned(),
        }
    }

    /// Where the server is as far as is known, for messages: without user or password.
    pub(crate) fn address(&self) -> String {
        match &self.place {
            Place::Fixed(target) => target.address.clone(),
            Place::Sentinelled { shared, .. } => {
                shared.master().map_or_else(|| shared.sentinels.address(), |target| target.address.clone())
            }
        }
    }

    /// A connection of the pool, and the server that it leads to.
    pub(crate) async fn pooled(&self) -> Result<(deadpool_redis::Connection, Arc<Target>), Error> {
        let target = self.target().await?;
        Ok((target.pooled().await?, target))
    }

    /// A connection of its own for blocking waits, and the server that it leads to.
    pub(crate) async fn dedicated(&self) -> Result<(MultiplexedConnection, Arc<Target>), Error> {
        let target = self.target().await?;
        Ok((target.dedicated().await?, target))
    }

    /// A connection of its own whose pushed messages, and its end, go to `sender`, and the server that it leads to.
    pub(crate) async fn listening(
        &self,
        sender: UnboundedSender<PushInfo>,
    ) -> Result<(MultiplexedConnection, Arc<Target>), Error> {
        let target = self.target().await?;
        Ok((target.listening(sender).await?, target))
    }

    /// Whether connections to this server are still to be used.
    pub(crate) fn is_current(&self, target: &Arc<Target>) -> bool {
        match &self.place {
            Place::Fixed(_) => true,
            Place::Sentinelled { shared, .. } => shared.master().is_some_and(|master| Arc::ptr_eq(&master, target)),
        }
    }

    /// The server for a new connection: Sentinels are asked each time.
    async fn target(&self) -> Result<Arc<Target>, Error> {
        match &self.place {
            Place::Fixed(target) => Ok(Arc::clone(target)),
            Place::Sentinelled { shared, watch } => {
                start(shared, watch);
                shared.ask().await
            }
        }
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        if let Place::Sentinelled { watch, .. } = &self.place
            && let Some(task) = watch.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            task.abort();
        }
    }
}

/// A task ends with the runtime that it was started on: then the next caller starts another.
fn start(shared: &Arc<Shared>, watch: &Mutex<Option<JoinHandle<()>>>) {
    let mut watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
    if watch.as_ref().is_none_or(JoinHandle::is_finished) {
        *watch = Some(tokio::spawn(Arc::clone(shared).watch()));
    }
}

impl Shared {
    /// Asks Sentinels again whenever one says that the master has changed, and once a floor, and leaves the old master.
    async fn watch(self: Arc<Self>) {
        loop {
            let _ = tokio::time::timeout(SENTINEL_FLOOR, self.sentinels.hint()).await;
            if let Err(error) = self.ask().await {
                tracing::warn!(%error, "looking for the master failed");
            }
        }
    }

    /// Asks Sentinels who the master is, and leaves the server that was. One that answers to be no master is not gone to.
    async fn ask(&self) -> Result<Arc<Target>, Error> {
        let question = self.questions.fetch_add(1, Ordering::Relaxed);
        let (host, port) = match (self.sentinels.master().await, self.master()) {
            (Ok(place), _) => place,
            // Sentinels that are away change no master: the last one that they named is still the best that is known.
            (Err(_), Some(known)) => return Ok(known),
            (Err(error), None) => return Err(error),
        };
        let info = at(self.sentinels.server(), host, port);
        if let Some(known) = self.master().filter(|known| known.client.get_connection_info().addr() == info.addr()) {
            return Ok(known);
        }
        let new = Arc::new(Target::named(info, question)?);
        drop(new.dedicated().await?);
        let mut master = self.master.lock().unwrap_or_else(PoisonError::into_inner);
        match &*master {
            // Somebody who asked later was answered sooner.
            Some(known) if known.question() > question => Ok(Arc::clone(known)),
            Some(known) if known.address == new.address => Ok(Arc::clone(known)),
            _ => {
                if let Some(old) = master.replace(Arc::clone(&new)) {
                    tracing::warn!(old = %old.address, new = %new.address, "the master has changed");
                    old.leave();
                }
                Ok(new)
            }
        }
    }

    fn master(&self) -> Option<Arc<Target>> {
        self.master.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn at(info: &ConnectionInfo, host: String, port: u16) -> ConnectionInfo {
    let addr = match info.addr().clone() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure, tls_params }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    info.clone().set_addr(addr)
}

/// What to connect with: TLS where it is asked for, with the certificates of the options.
fn prepared(info: ConnectionInfo, options: &ClientOptions) -> Result<ConnectionInfo, Error> {
    let tls = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
    if tls && !cfg!(feature = "tls") {
        return Err(Error::invalid("a rediss:// URL needs the feature `tls` of the crate dueq"));
    }
    // redis-rs takes `#insecure` for "trust everybody", where some crate of the program has switched that on.
    if matches!(info.addr(), ConnectionAddr::TcpTls { insecure: true, .. }) {
        return Err(Error::invalid(
            "a URL that ends with #insecure would have TLS trust everybody: name the server's CA by ClientOptions instead",
        ));
    }
    if options.want_tls() && !tls {
        return Err(Error::invalid(
            "certificates were given, and the URL is not rediss://: nothing would be encrypted",
        ));
    }
    // A program that has several TLS providers among its crates must choose one; so does this library, if nobody has.
    #[cfg(feature = "tls")]
    let _ = rustls::crypto::ring::default_provider().install_default();
    #[cfg(feature = "tls")]
    let info = with_certificates(info, options)?;
    Ok(info)
}

/// The same with the certificates of the options.
#[cfg(feature = "tls")]
fn with_certificates(info: ConnectionInfo, options: &ClientOptions) -> Result<ConnectionInfo, Error> {
    if !options.want_tls() {
        return Ok(info);
    }
    let marker = b"BEGIN CERTIFICATE";
    // An empty list would be taken, and nobody trusted.
    if options.ca_certificates.as_ref().is_some_and(|pem| !pem.windows(marker.len()).any(|part| part == marker)) {
        return Err(Error::invalid("what was given as the CA's certificates holds none in PEM"));
    }
    let client_tls = options.client_certificate.clone();
    let certificates = TlsCertificates {
        client_tls: client_tls.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key }),
        root_cert: options.ca_certificates.clone(),
    };
    let client = Client::build_with_tls(info, certificates).map_err(|error| {
        let message = format!("the certificates, or the key, cannot be read as PEM: {error}");
        Error::with_source(ErrorKind::InvalidInput, Applied::No, message, error)
    })?;
    Ok(client.get_connection_info().clone())
}

/// The URL itself is not repeated: it may hold a password.
fn bad_url() -> Error {
    Error::invalid(
        "the Redis URL cannot be read; it must look like redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], or rediss:// for TLS, \
         or redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/SERVICE[/DATABASE]",
    )
}

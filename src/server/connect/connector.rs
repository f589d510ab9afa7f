//! Decides which server to connect to: the one of the URL, or the master that Sentinels name.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redis::aio::MultiplexedConnection;
use redis::{IntoConnectionInfo, PushInfo};
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

use crate::error::Error;
use crate::server::cluster::slots::Address;
use crate::server::connect::credentials::Credentials;
use crate::server::connect::options::ClientOptions;
use crate::server::connect::pool::Server;
use crate::server::connect::target::Target;
use crate::server::sentinel::Sentinels;
use crate::server::sentinel::master::Master;

/// Finds the server and opens connections to it.
pub(crate) struct Connector {
    location: Location,
    /// How many connections this connector, and those made from it, have opened.
    opened: Arc<AtomicU64>,
    /// The runtime on which connections live, if it is not that of the callers.
    own: Option<OwnRuntime>,
}

#[derive(Clone)]
enum Location {
    Fixed(Arc<Server>),
    Sentinelled(Arc<Sentinelled>),
}

/// Opens a connection. Boxed: keeps the futures of callers shallow, as rustc limits their depth.
type Opening<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// The master that the Sentinels name, and the task that follows their decisions.
struct Sentinelled {
    master: Arc<Master>,
    watch: Mutex<Option<JoinHandle<()>>>,
}

impl Connector {
    /// Reads a URL: `redis://` or `rediss://`, `[USER][:PASSWORD@]HOST[:PORT][/DATABASE]`,
    /// `redis+unix:///PATH`, or `redis+sentinel://` as [`Sentinels::new`] takes it.
    pub(crate) fn new(url: &str, options: &ClientOptions) -> Result<Self, Error> {
        let (opened, credentials) = (Arc::default(), Arc::new(Credentials::new(options)));
        let location = match Sentinels::new(url, |info| Target::new(info, &credentials))? {
            None => {
                let info = url.into_connection_info().map_err(|_| bad_url())?;
                let target = Target::new(info, &credentials)?;
                Location::Fixed(Arc::new(Server::fixed(target, &opened)))
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

    /// A connector for this server of a cluster.
    pub(crate) fn to(server: &Arc<Server>) -> Self {
        Self {
            opened: Arc::clone(server.opened()),
            location: Location::Fixed(Arc::clone(server)),
            own: None,
        }
    }

    /// Makes a connector for the same server whose connections live on `runtime`, in a pool of
    /// their own, whichever task opens them. After the end of `runtime`, new connections live on
    /// the runtimes of their callers. Both connectors share the known master and the count of
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

    /// How many connections were opened, without those to Sentinels.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// User, database and TLS, and the address that the URL names.
    pub(crate) fn target(&self) -> &Target {
        match &self.location {
            Location::Fixed(server) => &server.target,
            Location::Sentinelled(of) => of.master.sentinels.server(),
        }
    }

    /// The address of the server as far as it is known, for error texts: without user and password.
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

    /// The address of the server; `None` for a Unix socket.
    pub(crate) fn place(&self) -> Option<Address> {
        self.target().address()
    }

    /// Takes a connection of the pool. Also returns its server.
    pub(crate) async fn pooled(&self) -> Result<(deadpool_redis::Connection, Arc<Server>), Error> {
        let server = self.server().await?;
        let opening = || -> Opening<_> {
            let server = Arc::clone(&server);
            Box::pin(async move { server.pooled().await })
        };
        Ok((self.open(opening).await?, server))
    }

    /// Opens a dedicated connection for blocking calls. Also returns its server.
    pub(crate) async fn dedicated(&self) -> Result<(MultiplexedConnection, Arc<Server>), Error> {
        let server = self.server().await?;
        let opening = || -> Opening<_> {
            let server = Arc::clone(&server);
            Box::pin(async move { server.dedicated().await })
        };
        Ok((self.open(opening).await?, server))
    }

    /// Opens a dedicated connection that sends pushed messages, and its end, to `sender`. Also
    /// returns its server.
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

    /// Whether this server is still the one to use.
    pub(crate) fn is_current(&self, server: &Arc<Server>) -> bool {
        match &self.location {
            Location::Fixed(own) => own.is_same(server) && !own.is_superseded(),
            Location::Sentinelled(of) => {
                let known = of.master.known();
                known.is_some_and(|known| known.is_same(server))
            }
        }
    }

    /// The server for a new connection. Sentinels are asked each time.
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
            Some(own) => Ok(own.pool_of(&server)),
        }
    }
}

/// The runtime on which the connections of a connector live, if it is not that of the callers.
struct OwnRuntime {
    runtime: Handle,
    /// The runtime that made the connector. It normally outlives `runtime`.
    home: Option<Handle>,
    /// The server that was used last, with a pool whose connections live on `runtime`.
    pool: Mutex<Option<Arc<Server>>>,
}

impl OwnRuntime {
    fn pool_of(&self, server: &Server) -> Arc<Server> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = pool.as_ref().filter(|known| known.is_same(server)) {
            return Arc::clone(known);
        }
        Arc::clone(pool.insert(Arc::new(server.with_own_pool())))
    }
}

impl Sentinelled {
    /// Follows the Sentinels' decisions in a task, on `home` if possible. The task ends with its
    /// runtime; then the next caller starts another.
    fn watch(&self, home: Option<&Handle>) {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        if watch.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let started = home.map(|home| home.spawn(Arc::clone(&self.master).watch()));
        // On a runtime that has shut down, a new task has already ended.
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

/// An error that does not repeat the URL, which may contain a password.
fn bad_url() -> Error {
    Error::invalid(
        "the Redis URL cannot be read; it must look like redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], or rediss:// for TLS, \
         or redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/SERVICE[/DATABASE]",
    )
}

#[cfg(test)]
mod tests;

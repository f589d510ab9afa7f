//! The servers of a client: one, or the masters of a Redis Cluster.

use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::error::{Applied, ConnectionFault, Error, ErrorKind};
use crate::model::reached::{PartialRead, UnreadPart};
use crate::protocol::keys::Keys;
use crate::protocol::keys::{SLOTS, slot_of};
use crate::server::cluster;
use crate::server::cluster::refresher::{self, Refresher};
use crate::server::cluster::topology::Topology;
use crate::server::connect::connector::Connector;
use crate::server::connect::credentials::Credentials;
use crate::server::connect::options::ClientOptions;
use crate::server::connect::pool::Server;
use crate::server::connect::target::Target;
use crate::server::failure;
use crate::server::info::{FITNESS, Info};
use crate::server::link::ServerLink;
use crate::server::patience::REACH_LIMIT;
use crate::server::patience::{Patience, Repeat};
use crate::server::rounds::at_once;
use crate::server::route::{Route, RoutedLane};
use crate::telemetry::events;

/// How long a call waits for the master of its slot to become known before it fails.
const OWNER_LIMIT: Duration = Duration::from_secs(1);

/// The servers that hold the queues of a client, and the connections to them.
pub(crate) enum Servers {
    One(Arc<ServerLink>),
    Cluster(Arc<Cluster>),
}

impl Servers {
    /// Servers for tests, of which none exists.
    #[cfg(test)]
    pub(crate) fn unconnected() -> Arc<Self> {
        Self::at("redis://127.0.0.1:1")
    }

    /// The server at this URL, without a check whether it is fit.
    #[cfg(test)]
    pub(crate) fn at(url: &str) -> Arc<Self> {
        let connector = Connector::new(url, &ClientOptions::new()).expect("a URL");
        Arc::new(Self::One(Arc::new(ServerLink::new(&Arc::new(connector)))))
    }

    /// Connects to the server, or the cluster, at this URL, and checks that it is fit for queues.
    /// If the server belongs to a cluster, the client uses all masters of that cluster.
    ///
    /// # Errors
    /// The errors of [`Client::connect`](crate::Client::connect).
    pub(crate) async fn connect(url: &str, options: &ClientOptions) -> Result<Self, Error> {
        let credentials = Arc::new(Credentials::new(options));
        let seeds = cluster::url::read(url, |info| Target::new(info, &credentials))?;
        let seeds = match seeds {
            Some(seeds) => seeds,
            None => {
                let connector = Arc::new(Connector::new(url, options)?);
                let link = ServerLink::new(&connector);
                let info = patiently_from_start(|| check(&link, options.accept_unfit)).await?;
                let clustered = info.is_some_and(|info| info.is_clustered());
                if !clustered || connector.is_sentinelled() {
                    link.control.time().await?;
                    return Ok(Self::One(Arc::new(link)));
                }
                if connector.place().is_none() {
                    return Err(Error::invalid(
                        "the server at this Unix socket belongs to a cluster: name a node, as in \
                         redis+cluster://HOST:PORT",
                    ));
                }
                cluster::url::check_database(connector.target().info())?;
                vec![connector.target().clone()]
            }
        };
        let cluster = Cluster::new(Topology::new(seeds), options.accept_unfit);
        patiently_from_start(|| refresher::refresh(&cluster.topology)).await?;
        // Repeated, because one master may be dead and its replica not promoted yet.
        patiently_from_start(|| async {
            let (links, failure) = cluster.usable_links().await;
            let unfit = |error: &Error| error.kind() == ErrorKind::Unsupported;
            match failure {
                Some(error) if links.is_empty() || unfit(&error) => Err(error),
                _ => Ok(()),
            }
        })
        .await?;
        Ok(Self::Cluster(Arc::new(cluster)))
    }

    /// Makes the same servers with connections that live on `runtime`, whichever task makes a call.
    /// They share the estimates of clocks, and what is known about a cluster.
    pub(crate) fn on_runtime(&self, runtime: Handle) -> Self {
        match self {
            Self::One(link) => Self::One(Arc::new(link.on_runtime(runtime))),
            Self::Cluster(cluster) => Self::Cluster(Arc::new(Cluster {
                topology: Arc::clone(&cluster.topology),
                accept_unfit: cluster.accept_unfit,
                links: Mutex::default(),
                refresher: Refresher::on(Some(runtime.clone())),
                own: Some((runtime, Arc::clone(cluster))),
            })),
        }
    }

    /// Whether the keys of a client may be on several servers.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// The way to the server that holds these keys.
    pub(crate) fn route(self: &Arc<Self>, keys: &Keys) -> Route {
        Route::new(Arc::clone(self), slot_of(keys.meta()))
    }

    /// A link to each server: to each master that serves slots, or to the one server.
    pub(crate) async fn links(&self) -> Result<Vec<Arc<ServerLink>>, Error> {
        match self.usable_links().await {
            (links, None) => Ok(links),
            (_, Some(error)) => Err(error),
        }
    }

    /// Links to all servers that can be used, and the error of one that cannot.
    pub(crate) async fn usable_links(&self) -> (Vec<Arc<ServerLink>>, Option<Error>) {
        match self {
            Self::One(link) => (vec![Arc::clone(link)], None),
            // Boxed: keeps the futures of callers shallow, as rustc limits their depth.
            Self::Cluster(cluster) => Box::pin(cluster.usable_links()).await,
        }
    }

    /// Links to all servers that reply within 2 s, and the errors of the others.
    pub(crate) async fn reached_links(&self) -> PartialRead<Vec<Arc<ServerLink>>> {
        let links = match self {
            Self::One(link) => vec![Arc::clone(link)],
            Self::Cluster(cluster) => cluster.all_links(),
        };
        let asked = links.iter().cloned().map(|link| async move {
            let address = link.connector().address();
            let reply = timeout(REACH_LIMIT, link.control.time()).await;
            reply.unwrap_or_else(|_| Err(failure::silent(&address, REACH_LIMIT)))
        });
        let replies = at_once(asked).await;
        let (mut value, mut unread) = (Vec::new(), Vec::new());
        for (link, reply) in links.iter().zip(replies) {
            match reply {
                Ok(_) => value.push(Arc::clone(link)),
                Err(error) => unread.push(UnreadPart::master(&link.connector().address(), error)),
            }
        }
        let parts = links.len();
        PartialRead {
            value,
            unread,
            parts,
        }
    }

    /// Whether a server serves reads of keys: the one server, or any master of the cluster. TIME is
    /// no probe: a server answers it also while it loads its data or its cluster is down.
    pub(crate) async fn any_serves(self: &Arc<Self>) -> bool {
        let mut asked = JoinSet::new();
        for slots in self.masters() {
            let is_there = |keys: &Keys| {
                let slot = slot_of(keys.meta());
                slots.iter().any(|range| range.contains(&slot))
            };
            // Some queue of this master, whether it exists or not.
            let names = (0..1_000_000).map(|number| number.to_string());
            let mut queues = names.filter_map(|name| Keys::of_queue(&name).ok());
            if let Some(keys) = queues.find(is_there) {
                let control = RoutedLane::control(&self.route(&keys));
                asked.spawn(async move { control.has(keys.meta()).await });
            }
        }
        while let Some(read) = asked.join_next().await {
            let served = match read {
                Ok(Ok(_)) => true,
                // This user may not read the key of this name, but was let in.
                Ok(Err(error)) => error.code() == Some("NOPERM"),
                Err(_) => false,
            };
            if served {
                return true;
            }
        }
        false
    }

    /// The slots of each master. A single server has all slots.
    pub(crate) fn masters(&self) -> Vec<Vec<RangeInclusive<u16>>> {
        match self {
            Self::One(_) => vec![vec![0..=SLOTS - 1]],
            Self::Cluster(cluster) => cluster.topology.slots_by_master(),
        }
    }

    /// How many changes of the masters of slots this client has noticed.
    pub(crate) fn owner_changes(&self) -> u64 {
        match self {
            Self::One(_) => 0,
            Self::Cluster(cluster) => *cluster.topology.changes().borrow(),
        }
    }

    /// How many connections were opened, without those to Sentinels and those for questions about
    /// slots.
    pub(crate) fn opened(&self) -> u64 {
        match self {
            Self::One(link) => link.connector().opened(),
            Self::Cluster(cluster) => cluster.topology.opened().load(Ordering::Relaxed),
        }
    }

    /// The address of the server, or of the masters, as far as they are known.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::One(link) => link.connector().address(),
            Self::Cluster(cluster) => cluster.topology.address(),
        }
    }
}

/// The masters of a cluster, with a link to each one in use.
pub(crate) struct Cluster {
    pub(crate) topology: Arc<Topology>,
    accept_unfit: bool,
    links: Mutex<Vec<(Arc<Server>, Arc<ServerLink>)>>,
    /// The runtime of the connections, if it is not that of the callers; and the client's own
    /// cluster, whose clocks are shared.
    own: Option<(Handle, Arc<Cluster>)>,
    refresher: Refresher,
}

impl Cluster {
    pub(crate) fn new(topology: Topology, accept_unfit: bool) -> Self {
        Self {
            topology: Arc::new(topology),
            accept_unfit,
            links: Mutex::default(),
            own: None,
            refresher: Refresher::on(Handle::try_current().ok()),
        }
    }

    /// The link to the master of this slot.
    ///
    /// # Errors
    /// `Unavailable` if no master serves it, `Unsupported` if its master is not fit for queues.
    pub(crate) async fn link(&self, slot: u16) -> Result<Arc<ServerLink>, Error> {
        self.refresher.ensure(&self.topology);
        if let Some(server) = self.topology.master_of(slot) {
            return self.link_to(&server).await;
        }
        let mut changes = self.topology.changes();
        self.topology.hint();
        let found = async {
            loop {
                if let Some(server) = self.topology.master_of(slot) {
                    return Some(server);
                }
                changes.changed().await.ok()?;
            }
        };
        match timeout(OWNER_LIMIT, found).await {
            Ok(Some(server)) => self.link_to(&server).await,
            _ => {
                let message = format!(
                    "no master of the cluster at {} serves slot {slot}",
                    self.topology.address()
                );
                Err(Error::new(ErrorKind::Unavailable, Applied::No, message))
            }
        }
    }

    /// The link to the master of this slot, if both are known.
    pub(crate) fn known_link(&self, slot: u16) -> Option<Arc<ServerLink>> {
        self.known_link_to(&*self.topology.master_of(slot)?)
    }

    /// The link to this server. A server that is used for the first time is checked.
    pub(crate) async fn link_to(&self, server: &Arc<Server>) -> Result<Arc<ServerLink>, Error> {
        let link = self.make_link(server);
        if !server.is_checked() {
            let checked = check(&link, self.accept_unfit).await;
            // Another server may have become the master.
            checked.inspect_err(|_| self.topology.hint())?;
            server.set_checked();
        }
        Ok(link)
    }

    fn make_link(&self, server: &Arc<Server>) -> Arc<ServerLink> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = links.iter().find(|(known, _)| known.is_same(server)) {
            return Arc::clone(known);
        }
        let new = match &self.own {
            Some((runtime, client)) => client.make_link(server).on_runtime(runtime.clone()),
            None => ServerLink::new(&Arc::new(Connector::to(server))),
        };
        links.retain(|(known, _)| self.topology.has(known));
        let new = Arc::new(new);
        links.push((Arc::clone(server), Arc::clone(&new)));
        new
    }

    fn known_link_to(&self, server: &Server) -> Option<Arc<ServerLink>> {
        let links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let known = links.iter().find(|(known, _)| known.is_same(server));
        known.map(|(_, link)| Arc::clone(link))
    }

    /// A link to each master, whether it can be used or not.
    fn all_links(&self) -> Vec<Arc<ServerLink>> {
        self.refresher.ensure(&self.topology);
        let masters = self.topology.masters();
        masters
            .iter()
            .map(|server| self.make_link(server))
            .collect()
    }

    async fn usable_links(&self) -> (Vec<Arc<ServerLink>>, Option<Error>) {
        self.refresher.ensure(&self.topology);
        let (mut links, mut failure) = (Vec::new(), None);
        for server in self.topology.masters() {
            match self.link_to(&server).await {
                Ok(link) => links.push(link),
                Err(error) => failure = Some(error),
            }
        }
        if links.is_empty() && failure.is_none() {
            let address = self.topology.address();
            let message = format!("no master of the cluster at {address} is known");
            failure = Some(Error::new(ErrorKind::Unavailable, Applied::No, message));
        }
        (links, failure)
    }

    /// A receiver that is notified of each change of a slot's master.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.topology.changes()
    }
}

/// Checks that a server is fit for queues. Returns its INFO; `None` if the user may not call INFO.
async fn check(link: &ServerLink, accept_unfit: bool) -> Result<Option<Info>, Error> {
    let address = link.connector().address();
    match link.control.info(&FITNESS).await {
        Ok(info) => {
            if !accept_unfit {
                info.check(&address)?;
            }
            Ok(Some(info))
        }
        Err(error) if error.code() == Some("NOPERM") => {
            events::server_unchecked(&address);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Repeats a call for up to 10 s, but reports a refused connection at once: when a program starts,
/// a wrong address is more likely than a restart of the server.
async fn patiently_from_start<T, F>(call: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let is_refused = |error: &Error| {
        error.kind() == ErrorKind::Unavailable
            && error.connection() == Some(ConnectionFault::Unreached)
    };
    let mut patience = Patience::new();
    loop {
        match call().await {
            Err(error) if !is_refused(&error) && patience.allows(&error, Repeat::Harmless) => {
                patience.pause().await;
            }
            result => return result,
        }
    }
}

//! The way from a call to the server that holds its keys. Without a cluster it is always the same
//! server; in a cluster it is the master of the keys' slot, and redirections are followed.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::OwnedSemaphorePermit;

use crate::error::{Applied, Error, ErrorKind};
use crate::model::durability::Durability;
use crate::protocol::keys::Keys;
use crate::protocol::replies::Reply;
use crate::protocol::verbs::Verb;
use crate::server::clock::Clock;
use crate::server::cluster::slots::Redirect;
use crate::server::durable::Waited;
use crate::server::lane::Lane;
use crate::server::link::ServerLink;
use crate::server::patience::{Patience, Repeat};
use crate::server::rounds::Rounds;
use crate::server::servers::Servers;

/// How many redirections one try of a call follows.
const MAX_REDIRECTS: u32 = 5;
/// After this long without a reply, the client asks the cluster whether another server is the
/// master.
const SLOW_CALL: Duration = Duration::from_millis(500);

/// The way to the server of one set of keys. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Route {
    servers: Arc<Servers>,
    slot: u16,
}

impl Route {
    pub(crate) fn new(servers: Arc<Servers>, slot: u16) -> Self {
        Self { servers, slot }
    }

    /// The servers that the route belongs to.
    #[cfg(test)]
    pub(crate) fn servers(&self) -> &Arc<Servers> {
        &self.servers
    }

    /// Whether other keys of the client may be on other servers.
    pub(crate) fn is_one_of_many(&self) -> bool {
        matches!(*self.servers, Servers::Cluster(_))
    }

    /// The slot of the keys, computed even if the server does not belong to a cluster.
    pub(crate) fn slot(&self) -> u16 {
        self.slot
    }

    /// Whether the keys of both routes are on one server, as far as this client knows.
    pub(crate) fn shares_server_with(&self, other: &Self) -> bool {
        match &*self.servers {
            _ if !Arc::ptr_eq(&self.servers, &other.servers) => false,
            Servers::One(_) => true,
            Servers::Cluster(cluster) => {
                let of = |slot| cluster.topology.master_of(slot);
                matches!((of(self.slot), of(other.slot)), (Some(one), Some(two)) if one.is_same(&two))
            }
        }
    }

    /// The link to the server that holds the keys, as far as this client knows.
    pub(crate) async fn link(&self) -> Result<Arc<ServerLink>, Error> {
        match &*self.servers {
            Servers::One(link) => Ok(Arc::clone(link)),
            // Boxed: keeps the futures of callers shallow, as rustc limits their depth.
            Servers::Cluster(cluster) => Box::pin(cluster.link(self.slot)).await,
        }
    }

    /// The estimate of that server's clock. It has no value if the server is not known.
    pub(crate) fn clock(&self) -> Arc<Clock> {
        self.known_link().map_or_else(
            || Arc::new(Clock::new()),
            |link| Arc::clone(link.control.clock()),
        )
    }

    /// The link to the server that holds the keys, if it is known.
    pub(crate) fn known_link(&self) -> Option<Arc<ServerLink>> {
        match &*self.servers {
            Servers::One(link) => Some(Arc::clone(link)),
            Servers::Cluster(cluster) => cluster.known_link(self.slot),
        }
    }

    /// Follows the redirection in an error of a call to `link`. Returns where the next try goes.
    async fn redirected(&self, link: &ServerLink, error: &Error) -> Redirected {
        let Servers::Cluster(cluster) = &*self.servers else {
            return Redirected::No;
        };
        let asked = link.connector().place();
        let followed = match asked.and_then(|asked| Redirect::in_error(error, &asked)) {
            Some(Redirect::Moved(slot, to)) => cluster
                .topology
                .moved(slot, &to)
                .map(|()| Redirected::Known),
            Some(Redirect::Ask(to)) => match cluster.topology.node(&to) {
                // Boxed, because otherwise every call's future would have room for it.
                Ok(server) => Box::pin(cluster.link_to(&server))
                    .await
                    .map(Redirected::Once),
                Err(error) => Err(error),
            },
            None => {
                let is_away = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout);
                if is_away || matches!(error.code(), Some("MOVED" | "ASK")) {
                    cluster.topology.hint();
                }
                Ok(Redirected::No)
            }
        };
        // If following fails, the call fails with its redirection.
        followed.unwrap_or(Redirected::No)
    }

    /// Called when a wait on `link` ended with this error, which may say that the keys are on
    /// another server.
    pub(crate) async fn learn(&self, link: &ServerLink, error: &Error) {
        self.redirected(link, error).await;
    }

    /// Whether this link leads to the server that holds the keys, as far as this client knows.
    pub(crate) fn leads_to(&self, link: &Arc<ServerLink>) -> bool {
        let known = self.known_link();
        known.is_some_and(|known| Arc::ptr_eq(&known, link))
    }

    /// Awaits a call. If it takes long, the client asks the cluster whether the server was
    /// replaced; if it was, the call fails at once.
    async fn watched<T>(&self, call: impl Future<Output = T>) -> T {
        let Servers::Cluster(cluster) = &*self.servers else {
            return call.await;
        };
        let mut call = std::pin::pin!(call);
        loop {
            tokio::select! {
                biased;
                result = &mut call => return result,
                () = tokio::time::sleep(SLOW_CALL) => cluster.topology.hint(),
            }
        }
    }
}

/// Where the next try of a call goes after an error.
enum Redirected {
    /// The error was no redirection.
    No,
    /// The next try goes to the server that the route leads to now.
    Known,
    /// The next try of this call only goes to this server.
    Once(Arc<ServerLink>),
}

/// The kind of connection that a call uses.
enum Kind {
    Pushes,
    Settles,
    Claims,
    Control,
    /// A dedicated connection, for calls that wait for replicas or disks.
    Dedicated(Dedicated),
}

struct Dedicated {
    permit: Arc<OwnedSemaphorePermit>,
    /// The lane that was used last, with the link to its server.
    lane: Mutex<Option<(Arc<ServerLink>, Arc<Lane>)>>,
}

impl Dedicated {
    fn lane(&self, link: &Arc<ServerLink>) -> Arc<Lane> {
        let mut last = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, lane)) = &*last
            && Arc::ptr_eq(of, link)
        {
            return Arc::clone(lane);
        }
        let (connector, clock) = (
            Arc::clone(link.connector()),
            Arc::clone(link.control.clock()),
        );
        let lane = Arc::new(Lane::dedicated(connector, clock, Arc::clone(&self.permit)));
        *last = Some((Arc::clone(link), Arc::clone(&lane)));
        lane
    }
}

/// The future of a call or of one try. Boxed: keeps the futures of callers shallow, as rustc limits
/// their depth.
type Try<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// The connection of one kind to whichever server holds the keys of a route.
pub(crate) struct RoutedLane {
    route: Route,
    kind: Kind,
}

impl RoutedLane {
    pub(crate) fn pushes(route: &Route) -> Self {
        Self::of(route, Kind::Pushes)
    }

    pub(crate) fn settles(route: &Route) -> Self {
        Self::of(route, Kind::Settles)
    }

    pub(crate) fn claims(route: &Route) -> Self {
        Self::of(route, Kind::Claims)
    }

    pub(crate) fn control(route: &Route) -> Self {
        Self::of(route, Kind::Control)
    }

    /// Makes a dedicated connection to the same server. Callers set their own time limits.
    pub(crate) fn dedicated(&self, permit: OwnedSemaphorePermit) -> Self {
        let dedicated = Dedicated {
            permit: Arc::new(permit),
            lane: Mutex::default(),
        };
        Self::of(&self.route, Kind::Dedicated(dedicated))
    }

    fn of(route: &Route, kind: Kind) -> Self {
        Self {
            route: route.clone(),
            kind,
        }
    }

    /// The lane to the server that holds the keys, as far as this client knows.
    pub(crate) async fn lane(&self) -> Result<Arc<Lane>, Error> {
        Ok(self.lane_of(&self.route.link().await?))
    }

    fn lane_of(&self, link: &Arc<ServerLink>) -> Arc<Lane> {
        match &self.kind {
            Kind::Pushes => Arc::clone(&link.pushes),
            Kind::Settles => Arc::clone(&link.settles),
            Kind::Claims => Arc::clone(&link.claims),
            Kind::Control => Arc::clone(&link.control),
            Kind::Dedicated(dedicated) => dedicated.lane(link),
        }
    }

    /// The rounds of calls to the server that holds the keys, if it is known.
    pub(crate) fn rounds(&self) -> Option<Arc<Rounds>> {
        let link = self.route.known_link()?;
        Some(Arc::clone(&link.rounds))
    }

    /// See [`Lane::distrust_idle`].
    pub(crate) fn distrust_idle(&self) {
        if let Some(link) = self.route.known_link() {
            self.lane_of(&link).distrust_idle();
        }
    }

    /// Calls a script once, at the server that holds the keys.
    pub(crate) fn call<'a>(
        &'a self,
        verb: Verb,
        keys: &'a Keys,
        args: &'a [&[u8]],
    ) -> Try<'a, Reply> {
        Box::pin(self.follow(move |lane, asking| {
            Box::pin(async move { lane.call(verb, keys, args, asking).await })
        }))
    }

    /// Calls a script, and waits until the effect is as durable as requested: see
    /// [`Lane::call_durably`].
    pub(crate) fn call_durably<'a>(
        &'a self,
        verb: Verb,
        keys: &'a Keys,
        args: &'a [&[u8]],
        durability: Durability,
    ) -> Try<'a, (Reply, Waited)> {
        Box::pin(self.follow(move |lane, asking| {
            Box::pin(async move {
                let called = lane.call_durably(verb, keys, args, durability, asking);
                called.await
            })
        }))
    }

    /// Calls a script, and repeats it for up to 10 s where that is safe, with growing, jittered
    /// pauses. `failed` is called with each error.
    pub(crate) async fn call_patiently(
        &self,
        verb: Verb,
        keys: &Keys,
        args: &[&[u8]],
        repeat: Repeat,
        failed: impl Fn(&Error),
    ) -> Result<Reply, Error> {
        if repeat == Repeat::Unsafe {
            self.distrust_idle();
        }
        let mut patience = Patience::new();
        loop {
            match self.call(verb, keys, args).await.inspect_err(&failed) {
                Err(error) if patience.allows(&error, repeat) => patience.pause().await,
                result => return result.map_err(|error| patience.last(error)),
            }
        }
    }

    /// Sends a plain command on keys of the route that only reads.
    pub(crate) async fn query(&self, command: &Cmd) -> Result<Value, Error> {
        self.command(command).await.map_err(Error::of_read)
    }

    /// Sends a plain command on keys of the route.
    pub(crate) fn command<'a>(&'a self, command: &'a Cmd) -> Try<'a, Value> {
        Box::pin(self.follow(move |lane, asking| {
            Box::pin(async move { lane.command_asking(command, asking).await })
        }))
    }

    /// Tries a call on the lane to the server that holds the keys, and follows redirections; a
    /// redirected call was not applied. `call` gets `true` if the lane leads to a server that is
    /// getting the slot, which serves it only after ASKING.
    async fn follow<'a, T>(
        &self,
        call: impl Fn(Arc<Lane>, bool) -> Try<'a, T>,
    ) -> Result<T, Error> {
        let (mut link, mut asking) = (self.route.link().await?, false);
        let mut redirects = 0;
        loop {
            let tried = self.route.watched(call(self.lane_of(&link), asking)).await;
            let Err(error) = tried else {
                return tried;
            };
            (link, asking) = match self.route.redirected(&link, &error).await {
                Redirected::No => return Err(error),
                Redirected::Known => (self.route.link().await?, false),
                Redirected::Once(link) => (link, true),
            };
            redirects += 1;
            if redirects > MAX_REDIRECTS {
                let message = format!("{MAX_REDIRECTS} redirections led back: {error}");
                return Err(Error::new(ErrorKind::Unavailable, Applied::No, message));
            }
        }
    }
}

#[cfg(test)]
mod tests;

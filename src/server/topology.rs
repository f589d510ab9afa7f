//! What a client knows about its cluster: which master serves each slot. It learns that from
//! several nodes every few seconds, from redirections, and sooner when something is amiss.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::ConnectionInfo;
use redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::error::{Applied, Error, ErrorKind};
use crate::server::cluster_view::{ASK_LIMIT, View, ask};
use crate::server::failure;
use crate::server::pool::{Server, at};
use crate::server::slots::{Address, SLOTS};
use crate::telemetry::events;

/// How often the nodes are asked while all is well, give or take a tenth.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);
/// The time between two rounds of questions at least, however much is amiss.
const MIN_INTERVAL: Duration = Duration::from_millis(250);
/// How many nodes a round asks.
const ASKED_NODES: usize = 3;
/// After this many rounds in a row that found only older epochs, the cluster was set up anew.
const OLDER_ROUNDS: u32 = 3;

/// The masters of a cluster, by slot.
pub(crate) struct Topology {
    /// The nodes that the URL names, with user, password and TLS.
    seeds: Vec<ConnectionInfo>,
    opened: Arc<AtomicU64>,
    known: Mutex<Known>,
    /// Counts the changes of owners.
    changes: watch::Sender<u64>,
    /// Asks for a round soon.
    hint: Arc<Notify>,
    /// Held by a round.
    asking: tokio::sync::Mutex<Asked>,
    watch: Mutex<Option<JoinHandle<()>>>,
}

/// The connections on which nodes are asked.
type Asked = HashMap<Address, MultiplexedConnection>;

struct Known {
    epoch: u64,
    /// How many rounds in a row found only older epochs.
    older_rounds: u32,
    nodes: BTreeSet<Address>,
    members: Vec<Member>,
    /// For each slot the index of its master among `members`, or `NOBODY`.
    owners: Vec<u16>,
}

const NOBODY: u16 = u16::MAX;

#[derive(Clone)]
struct Member {
    address: Address,
    server: Arc<Server>,
    /// Whether the view that is followed names it. Others come from redirections.
    in_view: bool,
}

impl Known {
    fn member_at(&self, address: &Address) -> Option<usize> {
        self.members
            .iter()
            .position(|member| member.address == *address)
    }

    fn owner(&self, slot: usize) -> Option<&Arc<Server>> {
        let owner = self.owners.get(slot)?;
        Some(&self.members.get(usize::from(*owner))?.server)
    }
}

impl Topology {
    /// A cluster with these nodes, of which nothing is known yet.
    pub(crate) fn new(seeds: Vec<ConnectionInfo>) -> Self {
        Self {
            seeds,
            opened: Arc::default(),
            known: Mutex::new(Known {
                epoch: 0,
                older_rounds: 0,
                nodes: BTreeSet::new(),
                members: Vec::new(),
                owners: vec![NOBODY; usize::from(SLOTS)],
            }),
            changes: watch::Sender::new(0),
            hint: Arc::default(),
            asking: tokio::sync::Mutex::default(),
            watch: Mutex::new(None),
        }
    }

    /// User, password and TLS, and the first address that the URL names.
    pub(crate) fn info(&self) -> &ConnectionInfo {
        &self.seeds[0]
    }

    /// The addresses of the masters as far as they are known, else those of the URL.
    pub(crate) fn address(&self) -> String {
        let masters = self.masters();
        let mut names: Vec<_> = masters
            .iter()
            .map(|server| server.address.clone())
            .collect();
        if names.is_empty() {
            names = self
                .seeds
                .iter()
                .map(|seed| seed.addr().to_string())
                .collect();
        }
        names.join(",")
    }

    /// The connections that were opened, without those on which the cluster is asked for its slots.
    pub(crate) fn opened(&self) -> &Arc<AtomicU64> {
        &self.opened
    }

    /// The master of this slot, if it is known.
    pub(crate) fn master_of(&self, slot: u16) -> Option<Arc<Server>> {
        self.lock().owner(usize::from(slot)).cloned()
    }

    /// All masters that are known to serve a slot.
    pub(crate) fn masters(&self) -> Vec<Arc<Server>> {
        let known = self.lock();
        let used: BTreeSet<_> = known
            .owners
            .iter()
            .map(|owner| usize::from(*owner))
            .collect();
        let members = used
            .into_iter()
            .filter_map(|owner| known.members.get(owner));
        members.map(|member| Arc::clone(&member.server)).collect()
    }

    /// Tells of each change of a slot's master from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Something is amiss: asks the nodes soon.
    pub(crate) fn hint(&self) {
        self.hint.notify_one();
    }

    /// A node said that the node at this address serves the slot.
    pub(crate) fn moved(&self, slot: u16, to: &Address) -> Result<(), Error> {
        let mut known = self.lock();
        let index = self.member(&mut known, to)?;
        if let Some(owner) = known.owners.get_mut(usize::from(slot)) {
            *owner = u16::try_from(index).unwrap_or(NOBODY);
        }
        drop(known);
        self.changed();
        self.hint();
        Ok(())
    }

    /// The node at this address.
    pub(crate) fn node(&self, address: &Address) -> Result<Arc<Server>, Error> {
        let mut known = self.lock();
        let index = self.member(&mut known, address)?;
        Ok(Arc::clone(&known.members[index].server))
    }

    /// The index of the node at this address, which it adds if it is new.
    fn member(&self, known: &mut Known, address: &Address) -> Result<usize, Error> {
        if let Some(index) = known.member_at(address) {
            return Ok(index);
        }
        known.members.push(Member {
            address: address.clone(),
            server: Arc::new(self.server(address)?),
            in_view: false,
        });
        Ok(known.members.len() - 1)
    }

    /// Follows the cluster in a task, on `home` if possible. A task ends with its runtime: then the
    /// next caller starts another.
    pub(crate) fn follow(self: &Arc<Self>, home: Option<&Handle>) {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        if watch.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        // The task must not keep the topology alive.
        let (weak, hint) = (Arc::downgrade(self), Arc::clone(&self.hint));
        let work = || follow(weak.clone(), Arc::clone(&hint));
        let started = home.map(|home| home.spawn(work()));
        // On a runtime that has shut down, the task has ended at once.
        let started = started.filter(|task| !task.is_finished());
        *watch = started.or_else(|| Some(tokio::spawn(work())));
    }

    /// Asks up to three nodes, and follows the one with the newest epoch.
    ///
    /// # Errors
    /// No node of those asked reaches its cluster: the last error.
    pub(crate) async fn refresh(&self) -> Result<(), Error> {
        let mut asked = self.asking.lock().await;
        let mut asks = JoinSet::new();
        for address in self.to_ask() {
            let connection = asked.remove(&address);
            let info = at(self.info(), address.host.clone(), address.port);
            asks.spawn(async move {
                let answer = timeout(ASK_LIMIT, ask(info, &address, connection)).await;
                let silent = || Err(failure::silent(&address.to_string(), ASK_LIMIT));
                (answer.unwrap_or_else(|_| silent()), address)
            });
        }
        let (mut views, mut failure) = (Vec::new(), None);
        while let Some(answer) = asks.join_next().await {
            match answer {
                Ok((Ok((view, connection)), address)) => {
                    asked.insert(address.clone(), connection);
                    if view.is_ok {
                        views.push(view);
                    } else {
                        failure = Some(down(&address));
                    }
                }
                Ok((Err(error), _)) => failure = Some(error),
                // The tasks neither panic nor are cancelled.
                Err(_) => {}
            }
        }
        match views.into_iter().max_by_key(|view| view.epoch) {
            Some(newest) => {
                self.apply(&newest)?;
                let known = self.lock();
                asked.retain(|address, _| known.nodes.contains(address));
                Ok(())
            }
            None => {
                Err(failure
                    .unwrap_or_else(|| Error::invalid("the URL of the cluster names no node")))
            }
        }
    }

    /// Some of the nodes that are known, and one that the URL names.
    fn to_ask(&self) -> Vec<Address> {
        let mut nodes: Vec<_> = self.lock().nodes.iter().cloned().collect();
        fastrand::shuffle(&mut nodes);
        let mut seeds: Vec<_> = self.seeds.iter().filter_map(Address::of).collect();
        fastrand::shuffle(&mut seeds);
        if nodes.is_empty() {
            nodes = seeds;
        } else if nodes.len() < ASKED_NODES {
            // What is known may be a part that was cut off.
            seeds.retain(|seed| !nodes.contains(seed));
            nodes.extend(seeds);
        }
        nodes.truncate(ASKED_NODES);
        nodes
    }

    /// Follows a view, unless it is older than what is known.
    fn apply(&self, view: &View) -> Result<(), Error> {
        let mut known = self.lock();
        if view.epoch < known.epoch {
            known.older_rounds += 1;
            if known.older_rounds < OLDER_ROUNDS {
                return Ok(());
            }
        }
        let mut next = Known {
            epoch: view.epoch,
            older_rounds: 0,
            nodes: view.nodes.clone(),
            members: Vec::new(),
            owners: vec![NOBODY; usize::from(SLOTS)],
        };
        for (first, last, address) in &view.ranges {
            let index = match next.member_at(address) {
                Some(index) => index,
                None => {
                    let server = match known.member_at(address) {
                        Some(index) => Arc::clone(&known.members[index].server),
                        None => Arc::new(self.server(address)?),
                    };
                    next.members.push(Member {
                        address: address.clone(),
                        server,
                        in_view: true,
                    });
                    next.members.len() - 1
                }
            };
            let range = usize::from(*first)..usize::from(*last) + 1;
            next.owners[range].fill(u16::try_from(index).unwrap_or(NOBODY));
        }
        let mut left = Vec::new();
        let same_epoch = known.epoch == view.epoch;
        for member in &known.members {
            if next.member_at(&member.address).is_some() {
                continue;
            }
            if member.in_view {
                left.push(Arc::clone(&member.server));
            } else if same_epoch {
                // A view of this epoch may be older than the redirection that named it.
                next.members.push(member.clone());
            }
        }
        let is_same =
            (0..usize::from(SLOTS)).all(|slot| match (known.owner(slot), next.owner(slot)) {
                (Some(old), Some(new)) => old.is_same(new),
                (old, new) => old.is_none() && new.is_none(),
            });
        *known = next;
        drop(known);
        for server in left {
            // It may be dead, and never reply to the calls that are in flight.
            events::master_left(&server.address);
            server.supersede();
        }
        if !is_same {
            self.changed();
        }
        Ok(())
    }

    fn server(&self, address: &Address) -> Result<Server, Error> {
        let info = at(self.info(), address.host.clone(), address.port);
        Server::named(info, &self.opened)
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        let watch = self.watch.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = watch.take() {
            task.abort();
        }
    }
}

/// Asks the nodes every few seconds, and soon after each hint.
async fn follow(topology: Weak<Topology>, hint: Arc<Notify>) {
    loop {
        let interval = REFRESH_INTERVAL.mul_f64(0.9 + 0.2 * fastrand::f64());
        let _ = timeout(interval, hint.notified()).await;
        let Some(topology) = topology.upgrade() else {
            return;
        };
        if let Err(error) = topology.refresh().await {
            events::cluster_unknown(&error);
        }
        drop(topology);
        sleep(MIN_INTERVAL).await;
    }
}

/// The cluster of this node serves no calls.
fn down(address: &Address) -> Error {
    let message = format!(
        "the cluster of redis at {address} is down: it reaches no majority of masters, or slots \
         are served by none (redis-cli -u \"$REDIS_URL\" CLUSTER NODES)"
    );
    Error::new(ErrorKind::Unavailable, Applied::No, message)
}

#[cfg(test)]
mod tests;

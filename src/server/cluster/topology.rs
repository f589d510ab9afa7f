//! What a client knows about its cluster: which master serves each slot. It learns that from
//! several servers every few seconds, from redirections, and sooner after a hint of a failure.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::Error;
use crate::protocol::keys::SLOTS;
use crate::server::cluster::slots::Address;
use crate::server::cluster::view::View;
use crate::server::connect::pool::Server;
use crate::server::connect::target::Target;
use crate::telemetry::events;

/// How many servers a round asks.
const ASKED_NODES: usize = 3;
/// After how many rounds in a row in which no view names a master the client leaves that master.
const MISSING_ROUNDS: u32 = 2;
/// After this many rounds in a row, and this time, in which all views have older epochs, the client
/// assumes that the cluster was set up anew. A server that is cut off reports `cluster_state:ok`
/// for a shorter time.
const OLDER_ROUNDS: u32 = 3;
const OLDER_TIME: Duration = Duration::from_secs(30);

/// The masters of a cluster, by slot.
pub(crate) struct Topology {
    /// The servers that the URL names, with user, password and TLS.
    seeds: Vec<Target>,
    opened: Arc<AtomicU64>,
    known: Mutex<Known>,
    /// Counts the changes of the masters of slots.
    changes: watch::Sender<u64>,
    /// Notified when a round should come soon.
    hints: watch::Sender<()>,
}

struct Known {
    epoch: u64,
    /// When a server last reported this epoch, and how many rounds since then found only older
    /// epochs.
    seen_at: Instant,
    older_rounds: u32,
    nodes: BTreeSet<Address>,
    members: Vec<Member>,
    /// For each slot, the index of its master among `members`, or `NO_OWNER`.
    owners: Vec<u16>,
}

const NO_OWNER: u16 = u16::MAX;

#[derive(Clone)]
struct Member {
    address: Address,
    server: Arc<Server>,
    /// In how many rounds in a row no view named this server as a master; `None` if only
    /// redirections have named it.
    missing: Option<u32>,
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
    /// Makes a cluster with these servers, of whose slots nothing is known yet.
    pub(crate) fn new(seeds: Vec<Target>) -> Self {
        Self {
            seeds,
            opened: Arc::default(),
            known: Mutex::new(Known {
                epoch: 0,
                seen_at: Instant::now(),
                older_rounds: 0,
                nodes: BTreeSet::new(),
                members: Vec::new(),
                owners: vec![NO_OWNER; usize::from(SLOTS)],
            }),
            changes: watch::Sender::new(0),
            hints: watch::Sender::new(()),
        }
    }

    /// User and TLS of the URL, and the first address that it names.
    pub(crate) fn target(&self) -> &Target {
        &self.seeds[0]
    }

    /// The addresses of the known masters. If none is known, the addresses in the URL.
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
                .map(|seed| seed.info().addr().to_string())
                .collect();
        }
        names.join(",")
    }

    /// The number of opened connections, without those for questions about slots.
    pub(crate) fn opened(&self) -> &Arc<AtomicU64> {
        &self.opened
    }

    /// The master of this slot, if it is known.
    pub(crate) fn master_of(&self, slot: u16) -> Option<Arc<Server>> {
        self.lock().owner(usize::from(slot)).cloned()
    }

    /// All masters that are known to serve slots.
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

    /// The slots of each master.
    pub(crate) fn slots_by_master(&self) -> Vec<Vec<RangeInclusive<u16>>> {
        let known = self.lock();
        let mut masters: BTreeMap<u16, Vec<RangeInclusive<u16>>> = BTreeMap::new();
        for (slot, owner) in (0..SLOTS).zip(&known.owners) {
            if *owner == NO_OWNER {
                continue;
            }
            let ranges = masters.entry(*owner).or_default();
            match ranges.last_mut() {
                Some(last) if *last.end() + 1 == slot => *last = *last.start()..=slot,
                _ => ranges.push(slot..=slot),
            }
        }
        masters.into_values().collect()
    }

    /// A receiver that is notified of each change of a slot's master.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Records a hint of a failure, so that the servers are asked soon.
    pub(crate) fn hint(&self) {
        self.hints.send_replace(());
    }

    /// A receiver that is notified of each hint.
    pub(crate) fn hints(&self) -> watch::Receiver<()> {
        self.hints.subscribe()
    }

    /// Records that a server has named the server at this address as the master of the slot.
    pub(crate) fn moved(&self, slot: u16, to: &Address) -> Result<(), Error> {
        let mut known = self.lock();
        let index = u16::try_from(self.member(&mut known, to)?).unwrap_or(NO_OWNER);
        let owner = known.owners.get_mut(usize::from(slot));
        let before = owner.map(|owner| std::mem::replace(owner, index));
        drop(known);
        if before != Some(index) {
            self.changed();
        }
        self.hint();
        Ok(())
    }

    /// The server at this address.
    pub(crate) fn node(&self, address: &Address) -> Result<Arc<Server>, Error> {
        let mut known = self.lock();
        let index = self.member(&mut known, address)?;
        Ok(Arc::clone(&known.members[index].server))
    }

    /// The index of the server at this address. Adds the server if it is new.
    fn member(&self, known: &mut Known, address: &Address) -> Result<usize, Error> {
        if let Some(index) = known.member_at(address) {
            // A redirection names this server, so earlier rounds without it no longer count.
            let missing = &mut known.members[index].missing;
            *missing = missing.map(|_| 0);
            return Ok(index);
        }
        known.members.push(Member {
            address: address.clone(),
            server: Arc::new(self.server(address)),
            missing: None,
        });
        Ok(known.members.len() - 1)
    }

    /// The servers to ask: two known ones, and one of the URL, because all known ones may be gone.
    /// As long as none is known, all servers of the URL.
    pub(crate) fn to_ask(&self) -> Vec<Address> {
        let mut nodes: Vec<_> = self.lock().nodes.iter().cloned().collect();
        let mut seeds: Vec<_> = self.seeds.iter().filter_map(Target::address).collect();
        if nodes.is_empty() {
            return seeds;
        }
        fastrand::shuffle(&mut nodes);
        nodes.truncate(ASKED_NODES - 1);
        seeds.retain(|seed| !nodes.contains(seed));
        fastrand::shuffle(&mut seeds);
        nodes.extend(seeds.into_iter().next());
        nodes
    }

    /// Whether the last view names the server at this address.
    pub(crate) fn is_known(&self, address: &Address) -> bool {
        self.lock().nodes.contains(address)
    }

    /// Whether calls may go to this server.
    pub(crate) fn has(&self, server: &Server) -> bool {
        let known = self.lock();
        let mut members = known.members.iter();
        members.any(|member| member.server.is_same(server))
    }

    /// Applies the newest of the views of one round, unless it is older than the known epoch.
    ///
    /// A server learns a new epoch a little before it learns all changes of that epoch. So among
    /// views of the same epoch the one that most servers share counts, and a master is left only
    /// after two rounds in which no such view names it.
    pub(crate) fn apply(&self, views: &[View]) -> Result<(), Error> {
        let shared = |view: &View| {
            let same = views.iter().filter(|other| other.ranges == view.ranges);
            same.count()
        };
        let Some(newest) = views.iter().max_by_key(|view| (view.epoch, shared(view))) else {
            return Ok(());
        };
        let mut known = self.lock();
        if newest.epoch < known.epoch {
            known.older_rounds += 1;
            if known.older_rounds < OLDER_ROUNDS || known.seen_at.elapsed() < OLDER_TIME {
                return Ok(());
            }
        }
        let mut next = self.known_by(newest, &known)?;
        let same_epoch = known.epoch == newest.epoch;
        let is_named = |address: &Address| {
            let mut views = views.iter().filter(|view| view.epoch == newest.epoch);
            views.any(|view| view.ranges.iter().any(|(_, _, master)| master == address))
        };
        let (mut left, mut is_unsure) = (Vec::new(), false);
        for member in &known.members {
            if next.member_at(&member.address).is_some() {
                continue;
            }
            let mut kept = member.clone();
            match member.missing {
                // This view may be older than the redirection that named the master.
                None if same_epoch => next.members.push(kept),
                None => {}
                Some(rounds) => {
                    let rounds = if is_named(&member.address) {
                        0
                    } else {
                        rounds + 1
                    };
                    if rounds < MISSING_ROUNDS {
                        kept.missing = Some(rounds);
                        next.members.push(kept);
                        is_unsure = true;
                    } else {
                        left.push(Arc::clone(&member.server));
                    }
                }
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
            // The master may be dead, and never reply to calls in flight.
            events::master_left(&server.address);
            server.supersede();
        }
        if !is_same {
            self.changed();
        }
        if is_unsure {
            self.hint();
        }
        Ok(())
    }

    /// The topology according to this view. Servers that are already known are kept.
    fn known_by(&self, view: &View, known: &Known) -> Result<Known, Error> {
        let mut next = Known {
            epoch: view.epoch,
            seen_at: Instant::now(),
            older_rounds: 0,
            nodes: view.nodes.clone(),
            members: Vec::new(),
            owners: vec![NO_OWNER; usize::from(SLOTS)],
        };
        for (first, last, address) in &view.ranges {
            let index = match next.member_at(address) {
                Some(index) => index,
                None => {
                    let server = match known.member_at(address) {
                        Some(index) => Arc::clone(&known.members[index].server),
                        None => Arc::new(self.server(address)),
                    };
                    next.members.push(Member {
                        address: address.clone(),
                        server,
                        missing: Some(0),
                    });
                    next.members.len() - 1
                }
            };
            let range = usize::from(*first)..usize::from(*last) + 1;
            next.owners[range].fill(u16::try_from(index).unwrap_or(NO_OWNER));
        }
        Ok(next)
    }

    fn server(&self, address: &Address) -> Server {
        let target = self.target().at(address.host.clone(), address.port);
        Server::named(target, &self.opened)
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;

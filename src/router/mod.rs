//! Which partition of a queue holds a message.
//!
//! A queue without a map has one partition, and no call asks for a map. A call that names an id
//! carries the epoch of the map by which it was routed. A partition with another epoch refuses it
//! (`REMAPPED` or `BEHIND`) and changes nothing; then the router reads the map again.

mod closing;
mod copies;
mod job;
mod limits;
mod moving;
mod orphans;
mod partitions;
pub(crate) mod plan;
mod preflight;
mod progress;
mod refresh;
mod registry;
mod repartition;
mod routing;
mod stores;
pub(crate) mod stranded;
mod transfer;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::error::Error;
use crate::partition::{Partition, QueueLink, WholeQueue};
use crate::protocol::keys::Keys;
use crate::protocol::partition_map::{PartitionMap, Tag};
use crate::server::servers::Servers;
use crate::server::stores::{OtherStores, Stores};
use crate::telemetry::metrics::Meters;

pub(crate) use partitions::{Partitions, Step};
pub(crate) use progress::Pace;
pub(crate) use refresh::HOME_LIMIT;
pub(crate) use registry::Registry;
pub(crate) use repartition::Conduct;
pub(crate) use routing::Routing;

/// Maps the ids of one queue to its partitions.
pub(crate) struct Router {
    queue_name: String,
    /// The whole queue, for its partitions.
    link: QueueLink,
    servers: Arc<Servers>,
    others: Arc<OtherStores>,
    meters: Arc<Meters>,
    /// The home in the client's own store, for nodes if the queue has moved to another one.
    own_home: Arc<Partition>,
    /// The last map in the client's own store that said so.
    moved: RwLock<Option<PartitionMap>>,
    current: RwLock<Arc<Partitions>>,
    /// Held by the one caller that reads the map. Other callers wait and use what it found.
    refreshing: Mutex<Option<LastRead>>,
    /// Whether the home was read at least once, even if it has no map.
    has_read: AtomicBool,
    /// When the first read of the map last failed, and how long to wait after that; `None` once a
    /// read succeeded.
    first_read: Mutex<Option<(Instant, Duration)>>,
    open: OpenPartition,
    /// Counts the claims by hand, so that each begins with another partition.
    claims: AtomicUsize,
    home_keys: Keys,
}

/// The last read of the map.
struct LastRead {
    began: Instant,
    /// The error of the read; `None` if it succeeded.
    failed: Option<Error>,
}

impl Router {
    /// Makes the router of the queue of this name. It assumes one partition until a server reports
    /// a map.
    ///
    /// # Errors
    /// `InvalidInput` if the name is not valid.
    pub(crate) fn new(
        queue_name: &str,
        servers: &Arc<Servers>,
        others: &Arc<OtherStores>,
    ) -> Result<Self, Error> {
        let home_keys = Keys::of_partition(queue_name, Tag::Home)?;
        let meters = Arc::new(Meters::new());
        let link = QueueLink::default();
        let stores = Stores {
            near: Arc::clone(servers),
            far: None,
        };
        let one = Partitions::of_map(queue_name, stores, &meters, &link, None)?;
        Ok(Self {
            queue_name: queue_name.to_owned(),
            link,
            servers: Arc::clone(servers),
            others: Arc::clone(others),
            own_home: Arc::clone(one.home()),
            moved: RwLock::default(),
            meters,
            current: RwLock::new(Arc::new(one)),
            refreshing: Mutex::default(),
            has_read: AtomicBool::new(false),
            first_read: Mutex::default(),
            open: OpenPartition::default(),
            claims: AtomicUsize::new(0),
            home_keys,
        })
    }

    /// Makes the whole queue known to the partitions, if it is not.
    pub(crate) fn link(&self, queue: impl FnOnce() -> Box<dyn WholeQueue>) {
        self.link.get_or_init(queue);
    }

    pub(crate) fn queue_name(&self) -> &str {
        &self.queue_name
    }

    /// The servers of the client. The queue may have moved to others.
    pub(crate) fn servers(&self) -> &Arc<Servers> {
        &self.servers
    }

    /// The counts of all handles of the queue, over all its partitions.
    pub(crate) fn meters(&self) -> &Arc<Meters> {
        &self.meters
    }

    /// The partitions as this client knows them now.
    pub(crate) fn current(&self) -> Arc<Partitions> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The partition with index 0. It holds the map, if there is one.
    pub(crate) fn home(&self) -> Arc<Partition> {
        Arc::clone(self.current().home())
    }

    /// The home in the client's own store: the one that nodes attend.
    pub(crate) fn own_home(&self) -> Arc<Partition> {
        match self.moved_map() {
            None => self.home(),
            Some(_) => Arc::clone(&self.own_home),
        }
    }

    /// The map in the client's own store that says that the queue has moved to another one; `None` if
    /// it has not.
    pub(crate) fn moved_map(&self) -> Option<PartitionMap> {
        if Arc::ptr_eq(&self.current().stores().near, &self.servers) {
            return None;
        }
        self.moved
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The keys of the home.
    pub(crate) fn home_keys(&self) -> &Keys {
        &self.home_keys
    }

    /// A number that grows with each claim by hand; modulo the number of partitions, it is the
    /// partition to begin with.
    pub(crate) fn next_claim(&self) -> usize {
        self.claims.fetch_add(1, Ordering::Relaxed)
    }

    /// The index of the open partition in a queue of this many partitions.
    pub(crate) fn open_index(&self, partitions: usize) -> usize {
        self.open.index(partitions, Instant::now())
    }
}

/// How long a partition is open.
const OPEN_FOR: Duration = Duration::from_millis(5);

/// The partition to which ids of the library's own go. For a moment all go to one: spread over all
/// partitions they would make small calls, of pushes, claims and acks. The next moment another one,
/// so that slow producers go round as well.
#[derive(Default)]
struct OpenPartition(std::sync::Mutex<Option<(usize, Instant)>>);

impl OpenPartition {
    fn index(&self, partitions: usize, now: Instant) -> usize {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *open {
            Some((index, since)) => {
                if now.saturating_duration_since(*since) >= OPEN_FOR {
                    (*index, *since) = (*index + 1, now);
                }
                *index %= partitions;
                *index
            }
            // Producers that start together begin with different ones.
            none => none.insert((fastrand::usize(..partitions), now)).0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_a_moment_go_to_one_partition_and_all_in_turn() {
        let (open, now) = (OpenPartition::default(), Instant::now());
        let first = open.index(12, now);
        let soon = now + OPEN_FOR - Duration::from_nanos(1);
        assert!((0..64).all(|_| open.index(12, soon) == first));
        let turn: Vec<_> = (1..=12)
            .map(|n| open.index(12, now + n * OPEN_FOR))
            .collect();
        let expected: Vec<_> = (1..=12).map(|n| (first + n) % 12).collect();
        assert_eq!(turn, expected);
        assert!(open.index(3, now) < 3, "the map has fewer partitions");
    }
}

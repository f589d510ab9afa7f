//! The settings that all calls of one batcher share.

use std::sync::Arc;
use std::time::Duration;

use crate::batch::supervise::Supervisor;
use crate::model::durability::Durability;
use crate::protocol::keys::Keys;
use crate::server::rounds::Rounds;
use crate::server::route::RoutedLane;
use crate::telemetry::metrics::Meters;

/// Most bytes of one script call with more than one item.
pub(crate) const BATCH_BYTES: usize = 1024 * 1024;
/// How long a lingering batcher waits between two calls. At full load it saves Redis 5 % of the
/// time that one message costs.
pub(crate) const LINGER: Duration = Duration::from_millis(1);

/// The keys, connection, meters, durability, linger and supervisor of a batcher's calls.
#[derive(Clone)]
pub(crate) struct CallSpec {
    /// The first argument: the epoch of the map by which ids were routed here, or nothing.
    pub(crate) fence: Arc<str>,
    /// Whether they are calls of producers of a queue with a map.
    pub(crate) is_of_many: bool,
    pub(crate) keys: Arc<Keys>,
    pub(crate) lane: Arc<RoutedLane>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) durability: Durability,
    /// How long after a call the next one goes, unless enough items have gathered.
    pub(crate) linger: Duration,
    /// Runs the batcher's tasks. `None`: they run on the runtime of its callers.
    pub(crate) supervisor: Option<Arc<dyn Supervisor>>,
}

impl CallSpec {
    pub(crate) fn new(keys: &Arc<Keys>, lane: &Arc<RoutedLane>, meters: &Arc<Meters>) -> Self {
        Self {
            fence: Arc::from(""),
            is_of_many: false,
            keys: Arc::clone(keys),
            lane: Arc::clone(lane),
            meters: Arc::clone(meters),
            durability: Durability::Memory,
            linger: Duration::ZERO,
            supervisor: None,
        }
    }

    /// For producers of a queue with a map.
    pub(crate) fn of_many(self, fence: Arc<str>) -> Self {
        Self {
            fence,
            is_of_many: true,
            ..self
        }
    }

    /// The rounds in which calls of a queue with a map go. A call that waits for replicas or disks
    /// has its own connection, and delays no other.
    pub(crate) fn rounds(&self) -> Option<Arc<Rounds>> {
        let shares = self.is_of_many && self.durability == Durability::Memory;
        shares.then(|| self.lane.rounds()).flatten()
    }

    /// For items whose callers do not wait for the results: a call goes 1 ms after the one before,
    /// or as soon as enough items have gathered.
    pub(crate) fn with_linger(self) -> Self {
        Self {
            linger: LINGER,
            ..self
        }
    }

    /// For a batcher whose tasks a worker supervises.
    pub(crate) fn with_supervisor(self, supervisor: Option<Arc<dyn Supervisor>>) -> Self {
        Self { supervisor, ..self }
    }

    /// For items that must be this durable before their callers get results.
    pub(crate) fn with_durability(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }
}

/// Whether this number of items, with this number of bytes in all, fits one call of `most` items.
/// A single item always does.
pub(crate) fn fits(items: usize, bytes: usize, most: usize) -> bool {
    items <= 1 || items <= most && bytes <= BATCH_BYTES
}

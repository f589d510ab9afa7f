//! The settings that all calls of one batcher share.

use std::sync::Arc;
use std::time::Duration;

use crate::batch::supervise::Supervisor;
use crate::model::durability::Durability;
use crate::protocol::keys::Keys;
use crate::server::rounds::Rounds;
use crate::server::route::RoutedLane;
use crate::telemetry::metrics::Meters;

/// The most bytes of one script call, unless the call has a single item.
pub(crate) const BATCH_BYTES: usize = 1024 * 1024;
/// How long a lingering batcher waits after a call before it sends the next one. At full load this
/// saves 5 % of Redis's time for a message.
pub(crate) const LINGER: Duration = Duration::from_millis(1);

/// The keys, connection, meters, durability, linger and supervisor of a batcher's calls.
#[derive(Clone)]
pub(crate) struct CallSpec {
    /// The first argument of the call: the epoch of the map that routed the ids here; empty if the
    /// queue has no map.
    pub(crate) fence: Arc<str>,
    /// Whether these are calls of a producer of a queue with a map.
    pub(crate) is_of_many: bool,
    pub(crate) keys: Arc<Keys>,
    pub(crate) lane: Arc<RoutedLane>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) durability: Durability,
    /// The pause after a call before the next call, unless enough items gather earlier.
    pub(crate) linger: Duration,
    /// Runs the batcher's tasks. With `None` they run on the runtime of the caller.
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

    /// Returns the settings for a producer of a queue with a map.
    pub(crate) fn of_many(self, fence: Arc<str>) -> Self {
        Self {
            fence,
            is_of_many: true,
            ..self
        }
    }

    /// The rounds that let the calls of a queue's partitions go together; `None` for a call that
    /// waits for replicas or disks. Such a call has its own connection and delays no other.
    pub(crate) fn rounds(&self) -> Option<Arc<Rounds>> {
        let shares = self.is_of_many && self.durability == Durability::Memory;
        shares.then(|| self.lane.rounds()).flatten()
    }

    /// Returns the settings for items whose callers do not wait for results. Such a batcher sends a
    /// call 1 ms after the previous one, or as soon as enough items have gathered.
    pub(crate) fn with_linger(self) -> Self {
        Self {
            linger: LINGER,
            ..self
        }
    }

    /// Returns the settings for a batcher whose tasks a worker supervises.
    pub(crate) fn with_supervisor(self, supervisor: Option<Arc<dyn Supervisor>>) -> Self {
        Self { supervisor, ..self }
    }

    /// Returns the settings for calls whose results wait until the change is this durable.
    pub(crate) fn with_durability(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }
}

/// Whether this number of items, with this number of bytes in all, fits one call of `most` items.
/// A single item always does.
pub(crate) fn fits(items: usize, bytes: usize, most: usize) -> bool {
    items <= 1 || items <= most && bytes <= BATCH_BYTES
}

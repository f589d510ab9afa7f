//! A queue of a node: its settings, the partitions that the node attends, and the watch of its roster
//! if the queue has a map. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::model::retry::Retry;
use crate::node::PartitionId;
use crate::node::consumers::consumer::Consumer;
use crate::node::consumers::handling::HandlerContext;
use crate::node::state::roster_watch::RosterWatch;
use crate::node::state::shares::ShareSettings;
use crate::partition::Partition;
use crate::protocol::partition_map::{PartitionMap, Tag};
use crate::router::Router;

/// Called when the node has left a removed queue, if a caller waits for that.
pub(crate) type Removal = Option<Box<dyn FnOnce() + Send>>;

/// A queue to attend.
#[derive(Clone)]
pub(crate) struct QueueEntry {
    pub(crate) router: Arc<Router>,
    pub(crate) consumer: Consumer,
    pub(crate) share: ShareSettings,
    pub(crate) lease: Duration,
    pub(crate) retry: Retry,
    pub(crate) time_limit: Option<Duration>,
}

/// A queue of the node.
pub(crate) struct NodeQueue {
    pub(crate) entry: QueueEntry,
    /// The settings that the handlers of all partitions share.
    pub(crate) context: Arc<HandlerContext>,
    /// The index of the pattern that found the queue; `None` if the user named it.
    pub(crate) pattern: Option<usize>,
    /// The home partition, on the connections of the node.
    pub(crate) home: Arc<Partition>,
    /// The partitions that the node attends or has not left yet, by tag.
    pub(crate) partitions: BTreeMap<Tag, PartitionId>,
    /// How many of `partitions` may get handlers.
    pub(crate) open: usize,
    /// Whether an operator has drained the node, by the last reply of the home.
    pub(crate) is_drained: bool,
    /// Set when the worker gives up the whole queue.
    pub(crate) removal: Option<Removal>,
    /// The watch of the roster; `None` while the queue has one partition.
    pub(crate) watch: Option<RosterWatch>,
    /// The map in the node's store that says that the queue has moved to another one.
    pub(crate) moved: Option<PartitionMap>,
    /// Whether a task reads the map of the queue.
    pub(crate) is_reading_map: bool,
}

impl NodeQueue {
    pub(crate) fn name(&self) -> &str {
        self.home.queue_name()
    }

    /// The partitions that keep a roster with this node.
    pub(crate) fn rosters(&self) -> Vec<Arc<Partition>> {
        let home = self.watch.iter().map(|_| &self.home);
        let deputy = self.watch.iter().filter_map(RosterWatch::watched_deputy);
        home.chain(deputy).cloned().collect()
    }

    /// Whether nothing of the removed queue is left.
    pub(crate) fn is_over(&self) -> bool {
        self.removal.is_some() && self.partitions.is_empty()
    }
}

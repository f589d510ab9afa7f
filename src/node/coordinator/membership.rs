//! The queues of a node, what it needs to attend further ones, and how it tells Redis that it
//! leaves.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use crate::node::consumers::handling::HandlerContext;
use crate::node::coordinator::settings::PatternEntry;
use crate::node::hints::scanner::Crowd;
use crate::node::hints::subscriptions::SubscriptionChange;
use crate::node::state::health::SharedHealth;
use crate::node::state::queue::{NodeQueue, QueueEntry};
use crate::node::{LastIds, QueueId};
use crate::partition::{Partition, Presence};
use crate::server::servers::Servers;
use crate::telemetry::events;

/// What the node needs to attend further queues.
pub(crate) struct Membership {
    /// The queues that the node starts with.
    pub(crate) initial: Vec<QueueEntry>,
    pub(crate) patterns: Vec<PatternEntry>,
    /// For how long the node may be silent about a queue in which nothing happens.
    pub(crate) silence: Duration,
    pub(crate) health: Arc<SharedHealth>,
    /// The node's own connections to the servers.
    pub(crate) servers: Arc<Servers>,
    /// The settings that the handlers of all queues share.
    pub(crate) context: HandlerContext,
    pub(crate) registered: Arc<Registered>,
    pub(crate) subscriptions: UnboundedSender<SubscriptionChange>,
    pub(crate) crowd: Arc<Crowd>,
    pub(crate) by_name: HashMap<String, QueueId>,
    pub(crate) queues: HashMap<QueueId, NodeQueue>,
    /// Queues that the user removed: no scan adds them again.
    pub(crate) excluded: BTreeSet<String>,
    pub(crate) ids: LastIds,
    /// How many partitions the node is leaving whose handlers have not ended.
    pub(crate) draining: usize,
}

impl Membership {
    pub(crate) fn is_draining(&self) -> bool {
        self.draining > 0
    }
}

/// The partitions in which Redis counts the node as alive, keyed by their wake-up lists. If the
/// coordinator panics, the worker uses them to tell Redis that the node leaves.
#[derive(Default)]
pub(crate) struct Registered(Mutex<HashMap<String, Arc<Partition>>>);

impl Registered {
    pub(crate) fn add(&self, partition: &Arc<Partition>) {
        let key = partition.keys().wake.clone();
        self.lock().insert(key, Arc::clone(partition));
    }

    /// Forgets a partition that the node has left.
    pub(crate) fn remove(&self, partition: &Partition) {
        self.lock().remove(&partition.keys().wake);
    }

    pub(crate) fn take(&self) -> Vec<Arc<Partition>> {
        self.lock()
            .drain()
            .map(|(_, partition)| partition)
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Partition>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells Redis that a node leaves a partition.
pub(crate) async fn send_leave(partition: &Partition, node: &str) {
    let reports = partition.has_times();
    let left = partition.beat(node, Presence::Leave, None, reports).await;
    if let Err(error) = left {
        let name = partition.queue_name();
        events::call_failed(name, "leave", &error, "Redis forgets the node after 3 s");
    }
}

/// Removes a node from the roster of a queue.
pub(crate) async fn unwatch(home: &Partition, node: &str) {
    if let Err(error) = home.unwatch(node).await {
        let then = "Redis forgets the node after 3 s";
        events::call_failed(home.queue_name(), "unwatch", &error, then);
    }
}

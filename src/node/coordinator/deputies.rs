//! Handles a queue whose home is unreachable or was emptied: the coordinator finds a copy of the
//! map, and the partition that keeps the roster in place of the home.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::node::coordinator::Coordinator;
use crate::node::coordinator::event::Event;
use crate::node::runtime::task::Task;
use crate::node::state::roster_watch::RosterWatch;
use crate::node::{PartitionId, QueueId};
use crate::partition::Partition;
use crate::protocol::partition_map::Tag;
use crate::protocol::results::administer::Watched;

/// How long the node waits for the home, or for another partition that stands in for it, before it
/// asks the next one. A roster forgets a node after 3 s.
const DEPUTY_LIMIT: Duration = Duration::from_millis(500);

impl Coordinator {
    /// Called when the home of a queue does not exist or cannot be reached: looks for copies of the
    /// queue's map, unless the map was read already.
    pub(crate) fn look_for_map(&mut self, id: PartitionId) {
        let Some(queue_id) = self.partitions.get(&id).map(|partition| partition.queue) else {
            return;
        };
        let queue = self.membership.queues.get_mut(&queue_id);
        let Some(queue) = queue.filter(|queue| !queue.entry.router.has_learned()) else {
            return;
        };
        if queue.is_reading_map || queue.removal.is_some() {
            return;
        }
        queue.is_reading_map = true;
        let (router, sender) = (Arc::clone(&queue.entry.router), self.sender.clone());
        self.tasks.spawn(Task::Call, async move {
            let learned = router.learned().await;
            // The send fails if the coordinator has stopped.
            let _ = sender.send(Event::Mapped(queue_id, Ok(learned)));
        });
    }

    /// Called when a partition exists. No search for the map is needed, because its replies carry
    /// the epoch of the map.
    pub(crate) fn needs_no_search(&self, id: PartitionId) {
        let queue_id = self.partitions.get(&id).map(|partition| partition.queue);
        if let Some(queue) = queue_id.and_then(|queue_id| self.membership.queues.get(&queue_id)) {
            queue.entry.router.set_learned();
        }
    }

    /// Called for a queue that the user named: looks for copies of its map even if the home has
    /// none.
    pub(crate) fn search_map(&mut self, queue_id: QueueId) {
        let queue = self.membership.queues.get_mut(&queue_id);
        let Some(queue) = queue.filter(|queue| queue.home.route().is_one_of_many()) else {
            return;
        };
        queue.is_reading_map = true;
        let (router, sender) = (Arc::clone(&queue.entry.router), self.sender.clone());
        self.tasks.spawn(Task::Call, async move {
            // If the search fails while the home is unreachable or missing, the next beat starts
            // another.
            let found = router.searched().await.unwrap_or_else(|_| router.current());
            let _ = sender.send(Event::Mapped(queue_id, Ok(found)));
        });
    }

    /// Makes the connections for partitions that stand in for the home, if they are needed.
    pub(super) fn make_deputies(&mut self, queue_id: QueueId) {
        let watch = self.membership.queues.get(&queue_id);
        let watch = watch.and_then(|queue| queue.watch.as_ref());
        let missing = watch.map(RosterWatch::missing_deputies).unwrap_or_default();
        if missing.is_empty() {
            return;
        }
        let deputies = missing.iter().map(|deputy| self.on_servers(deputy));
        let deputies = deputies.collect();
        let queue = self.membership.queues.get_mut(&queue_id);
        if let Some(watch) = queue.and_then(|queue| queue.watch.as_mut()) {
            watch.own_deputies = deputies;
        }
    }
}

/// Asks these partitions for the roster, the home first, until one answers and has a map. Returns
/// the home's answer if none does. `known` is the roster that the node has.
pub(super) async fn watch_first(
    at: &[Arc<Partition>],
    node: &str,
    known: (Tag, u64),
    help: &[Tag],
) -> (Tag, Result<Watched, Error>) {
    let mut of_home = None;
    for partition in at {
        let tag = partition.tag();
        let number = if tag == known.0 { known.1 } else { 0 };
        let watching = partition.watch(node, number, help);
        let watched = match at {
            [_] => watching.await,
            _ => partition.within(DEPUTY_LIMIT, watching).await,
        };
        if watched.as_ref().is_ok_and(|watched| watched.roster > 0) {
            return (tag, watched);
        }
        of_home.get_or_insert(watched);
    }
    let none = || Err(Error::invalid("no partition to watch"));
    (Tag::Home, of_home.unwrap_or_else(none))
}

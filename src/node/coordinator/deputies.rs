//! A queue whose home is away or was emptied: the coordinator finds its map, and the partition that
//! has the roster in place of the home.

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

/// How long the home, or a deputy, is waited for while another partition may be watched instead.
/// A roster forgets a node after 3 s.
const DEPUTY_LIMIT: Duration = Duration::from_millis(500);

impl Coordinator {
    /// The home of a queue does not exist, or cannot be reached: looks for copies of its map, unless
    /// the map was read already.
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
            // The coordinator may have stopped.
            let _ = sender.send(Event::Mapped(queue_id, Ok(learned)));
        });
    }

    /// A partition exists, so that its replies tell the epoch of the map.
    pub(crate) fn needs_no_search(&self, id: PartitionId) {
        let queue_id = self.partitions.get(&id).map(|partition| partition.queue);
        if let Some(queue) = queue_id.and_then(|queue_id| self.membership.queues.get(&queue_id)) {
            queue.entry.router.set_learned();
        }
    }

    /// The user named the queue: looks for copies of its map also if the home has none.
    pub(crate) fn search_map(&mut self, queue_id: QueueId) {
        let queue = self.membership.queues.get_mut(&queue_id);
        let Some(queue) = queue.filter(|queue| queue.home.route().is_one_of_many()) else {
            return;
        };
        queue.is_reading_map = true;
        let (router, sender) = (Arc::clone(&queue.entry.router), self.sender.clone());
        self.tasks.spawn(Task::Call, async move {
            // If it fails, and the home is away or does not exist, the next beat looks again.
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

/// Watches the first of these partitions that answers and has a map, the home first. Returns the
/// home's answer if none does. `known` is the roster that the node has.
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

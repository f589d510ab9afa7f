//! Queues with a map: which of their partitions the node attends, by the roster at the home.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::node::coordinator::Coordinator;
use crate::node::coordinator::deputies::watch_first;
use crate::node::coordinator::event::Event;
use crate::node::coordinator::membership::unwatch;
use crate::node::runtime::task::Task;
use crate::node::state::queue::NodeQueue;
use crate::node::state::roster_watch::RosterWatch;
use crate::node::state::timers::Due;
use crate::node::{PartitionId, QueueId};
use crate::partition::Partition;
use crate::protocol::partition_map::Tag;
use crate::protocol::results::administer::Watched;
use crate::router::Partitions;
use crate::server::patience::reconnect_delays;
use crate::telemetry::events;

/// The rank of a node that is leaving the queue. With it the node promotes 0.2 s after the due
/// time.
const LAST_RANK: usize = 8;
/// For how long messages must wait before a leader whose handlers are all busy asks other nodes to
/// help.
const OVERDUE: Duration = Duration::from_millis(200);

impl Coordinator {
    /// Called with the epoch in a partition's reply: reads the map again if the node has another
    /// epoch.
    pub(crate) fn check_epoch(&mut self, id: PartitionId, epoch: Option<u64>) {
        let Some(partition) = self.partitions.get(&id) else {
            return;
        };
        let (queue_id, tag) = (partition.queue, partition.remote.tag());
        self.compare_epoch(queue_id, tag, epoch);
    }

    fn compare_epoch(&mut self, queue_id: QueueId, tag: Tag, epoch: Option<u64>) {
        let Some(queue) = self.membership.queues.get_mut(&queue_id) else {
            return;
        };
        let watch = queue.watch.as_ref();
        let moved = queue.moved.as_ref().map(|map| map.epoch);
        let known = moved.or_else(|| watch.and_then(|watch| watch.partitions.epoch()));
        // A partition other than the home may still have the previous map.
        let is_news = if tag.is_home() {
            epoch != known
        } else {
            epoch > known
        };
        if !is_news || queue.is_reading_map || queue.removal.is_some() {
            return;
        }
        queue.is_reading_map = true;
        let (router, sender) = (Arc::clone(&queue.entry.router), self.sender.clone());
        self.tasks.spawn(Task::Call, async move {
            let seen = router.current();
            let read = router.confirm_own(&seen, epoch).await;
            // The send fails if the coordinator has stopped.
            let _ = sender.send(Event::Mapped(queue_id, read));
        });
    }

    /// Handles the answer to a read of a queue's map.
    pub(crate) fn mapped(
        &mut self,
        queue_id: QueueId,
        read: Result<Arc<Partitions>, Error>,
        now: Instant,
    ) {
        let Some(queue) = self.membership.queues.get_mut(&queue_id) else {
            return;
        };
        queue.is_reading_map = false;
        let partitions = match read {
            Ok(partitions) => partitions,
            Err(error) => {
                let then = "it is read again after the next beat";
                return events::call_failed(queue.name(), "map", &error, then);
            }
        };
        if queue.removal.is_some() {
            return;
        }
        let moved = queue.entry.router.moved_map();
        if let Some(url) = moved.as_ref().and_then(|map| map.url.as_deref())
            && queue.moved.is_none()
        {
            events::queue_moved(queue.name(), url);
        }
        queue.moved = moved;
        if queue.moved.is_some() {
            return self.attend_home_alone(queue_id, now);
        }
        match &mut queue.watch {
            Some(watch) if partitions.map().is_some() => {
                watch.remap(&partitions, &self.node);
                self.attend_ranks(queue_id, now);
            }
            None if partitions.map().is_some() => {
                queue.watch = RosterWatch::of(&partitions, &self.node);
                self.watch(queue_id, now);
            }
            Some(_) => self.attend_home_alone(queue_id, now),
            None => {}
        }
    }

    /// Called when a queue has only one partition again, or none in this store.
    fn attend_home_alone(&mut self, queue_id: QueueId, now: Instant) {
        let Some(queue) = self.membership.queues.get_mut(&queue_id) else {
            return;
        };
        if let Some(watch) = queue.watch.take() {
            self.timers.cancel(watch.timer);
        }
        self.leave_all_but(queue_id, |tag| tag == Tag::Home, now);
        self.join(queue_id, Tag::Home, None, now);
    }

    /// Whether a handler would be free for the queue's messages.
    fn has_free_handlers(&self, queue: &NodeQueue) -> bool {
        let mut members = self.attended(queue);
        members.any(|partition| !partition.is_drained && self.free_for(partition.id) > 0)
    }

    /// Takes this node out of the roster, because it takes no more messages of the queue. The node
    /// keeps its partitions until its handlers have ended, at a rank behind those of the nodes that
    /// attend them now.
    pub(crate) fn leave_roster(&mut self, queue_id: QueueId) {
        let Some(queue) = self.membership.queues.get_mut(&queue_id) else {
            return;
        };
        let Some(watch) = &mut queue.watch else {
            return;
        };
        self.timers.cancel(watch.timer.take());
        for id in queue.partitions.values() {
            let partition = self.partitions.get_mut(id);
            if let Some(partition) = partition.filter(|partition| partition.is_attending()) {
                partition.timers.rank = Some(LAST_RANK);
            }
        }
        let node = self.node.clone();
        for at in queue.rosters() {
            let node = node.clone();
            self.tasks.spawn(Task::Call, async move {
                unwatch(&at, &node).await;
            });
        }
    }

    /// Sends a watch of the queue's roster now.
    pub(crate) fn watch(&mut self, queue_id: QueueId, now: Instant) {
        if self.wake.is_none() {
            return; // the node is about to end
        }
        self.make_deputies(queue_id);
        let help = self.overdue_partitions(queue_id, now);
        let Some(queue) = self.membership.queues.get_mut(&queue_id) else {
            return;
        };
        let mut at = vec![Arc::clone(&queue.home)];
        let Some(watch) = queue.watch.as_mut().filter(|watch| !watch.is_watching) else {
            return;
        };
        at.extend_from_slice(watch.deputies());
        watch.is_watching = true;
        watch.timer = None;
        let (node, known) = (self.node.clone(), (watch.watched_at, watch.number));
        let sender = self.sender.clone();
        self.tasks.spawn(Task::Call, async move {
            let (tag, watched) = watch_first(&at, &node, known, &help).await;
            let _ = sender.send(Event::Watched(queue_id, now, tag, watched));
        });
    }

    /// The partitions that this node leads and whose messages wait too long.
    fn overdue_partitions(&self, queue_id: QueueId, now: Instant) -> Vec<Tag> {
        let Some(queue) = self.membership.queues.get(&queue_id) else {
            return Vec::new();
        };
        if self.has_free_handlers(queue) {
            return Vec::new();
        }
        let overdue = self.attended(queue).filter(|partition| {
            partition.timers.is_leader(now)
                && partition.delivers()
                && partition.oldest.waited(now) >= OVERDUE
        });
        overdue.map(|partition| partition.remote.tag()).collect()
    }

    /// Handles the answer of a partition to a watch that was sent at `sent`.
    pub(crate) fn watched(
        &mut self,
        queue_id: QueueId,
        sent: Instant,
        (tag, result): (Tag, Result<Watched, Error>),
        now: Instant,
    ) {
        let Some(queue) = self.membership.queues.get(&queue_id) else {
            return;
        };
        let has_free_handlers = self.has_free_handlers(queue);
        let Some(queue) = self.membership.queues.get_mut(&queue_id) else {
            return;
        };
        let Some(watch) = queue.watch.as_mut() else {
            return;
        };
        watch.is_watching = false;
        if self.wake.is_none() || queue.removal.is_some() {
            // This watch may have reached Redis after the node left the roster, and so entered it
            // again.
            return self.leave_roster(queue_id);
        }
        let interval = watch.watch_interval(fastrand::f64());
        let at = match result {
            Ok(watched) => {
                let drained = tag.is_home().then_some(watched.drained);
                watch.watched(tag, &watched, has_free_handlers, now);
                self.membership.crowd.saw(watch.nodes());
                self.attend_ranks(queue_id, now);
                self.compare_epoch(queue_id, tag, watched.header.epoch);
                if let Some(drained) = drained {
                    self.drain(queue_id, drained, now);
                }
                sent + interval
            }
            Err(error) => {
                watch.failures = watch.failures.saturating_add(1);
                let pause = reconnect_delays().delay(watch.failures, fastrand::f64());
                let then = "the node goes on with the last roster";
                events::call_failed(queue.name(), "watch", &error, then);
                now + if error.is_retryable() {
                    pause
                } else {
                    interval
                }
            }
        };
        let timer = self.timers.schedule(Due::Watch(queue_id), at);
        let queue = self.membership.queues.get_mut(&queue_id);
        if let Some(watch) = queue.and_then(|queue| queue.watch.as_mut()) {
            watch.timer = timer;
        }
    }

    /// Attends the partitions that the roster gives to this node, and leaves all others.
    pub(crate) fn attend_ranks(&mut self, queue_id: QueueId, now: Instant) {
        let Some(queue) = self.membership.queues.get(&queue_id) else {
            return;
        };
        let watch = queue.watch.as_ref().filter(|_| queue.removal.is_none());
        let Some(wanted) = watch.and_then(RosterWatch::ranks) else {
            return;
        };
        self.leave_all_but(queue_id, |tag| wanted.contains_key(&tag), now);
        for (tag, rank) in wanted {
            self.join(queue_id, tag, Some(rank), now);
        }
    }

    /// Leaves the partitions of a queue for which `stays` is false.
    fn leave_all_but(&mut self, queue_id: QueueId, stays: impl Fn(Tag) -> bool, now: Instant) {
        let Some(queue) = self.membership.queues.get(&queue_id) else {
            return;
        };
        let gone = self
            .attended(queue)
            .filter(|partition| !stays(partition.remote.tag()));
        let gone: Vec<_> = gone.map(|partition| partition.id).collect();
        for id in gone {
            self.leave(id, now);
        }
    }

    /// Attends the home of a queue without a map, unless the node attends it already.
    pub(crate) fn attend_only_home(&mut self, queue_id: QueueId, now: Instant) {
        let queue = self.membership.queues.get(&queue_id);
        let has_map = queue.is_none_or(|it| it.watch.is_some() || it.removal.is_some());
        if !has_map {
            self.join(queue_id, Tag::Home, None, now);
        }
    }

    /// The partitions that keep a roster with this node.
    pub(crate) fn rosters(&self) -> Vec<Arc<Partition>> {
        let queues = self.membership.queues.values();
        queues.flat_map(NodeQueue::rosters).collect()
    }
}

#[cfg(test)]
mod tests;

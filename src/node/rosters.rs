//! The partitions of a queue with a map: which of them the coordinator attends, by the roster at the
//! home.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::node::coordinator::Coordinator;
use crate::node::deputies::watch_first;
use crate::node::event::Event;
use crate::node::event::QueueNumber;
use crate::node::node_queue::{NodeQueue, Ranks};
use crate::node::tasks::Task;
use crate::node::timers::Action;
use crate::partition::Partition;
use crate::protocol::partition_map::Tag;
use crate::protocol::results::administer::Watched;
use crate::router::Partitions;
use crate::server::patience::reconnect_delays;
use crate::telemetry::events;

/// The rank of a node that is about to leave: it promotes 0.2 s after the due time.
const LAST_RANK: usize = 8;
/// A leader whose handlers are all busy asks for help if messages of its partition wait for so
/// long.
const OVERDUE: Duration = Duration::from_millis(200);

impl Coordinator {
    /// A reply of a partition carried this epoch: reads the map again if the node has another one.
    pub(crate) fn check_epoch(&mut self, number: QueueNumber, epoch: Option<u64>) {
        let Some(attended) = self.queues.get(&number) else {
            return;
        };
        let (group, tag) = (attended.group, attended.partition.tag());
        self.compare_epoch(group, tag, epoch);
    }

    fn compare_epoch(&mut self, group: QueueNumber, tag: Tag, epoch: Option<u64>) {
        let Some(queue) = self.membership.queues.get_mut(&group) else {
            return;
        };
        let ranks = queue.ranks.as_ref();
        let known = ranks.and_then(|ranks| ranks.partitions.epoch());
        // Another partition than the home may have the map of a moment ago.
        let is_news = match tag {
            Tag::Home => epoch != known,
            Tag::Numbered(_) => epoch > known,
        };
        if !is_news || queue.is_reading_map || queue.removal.is_some() {
            return;
        }
        queue.is_reading_map = true;
        let (router, sender) = (Arc::clone(&queue.entry.router), self.sender.clone());
        self.tasks.spawn(Task::Call, async move {
            let seen = router.current();
            let read = router.confirm(&seen, epoch).await;
            // The coordinator may have stopped.
            let _ = sender.send(Event::Mapped(group, read));
        });
    }

    /// The map of a queue was read.
    pub(crate) fn mapped(
        &mut self,
        group: QueueNumber,
        read: Result<Arc<Partitions>, Error>,
        now: Instant,
    ) {
        let Some(queue) = self.membership.queues.get_mut(&group) else {
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
        match &mut queue.ranks {
            Some(ranks) if partitions.map().is_some() => {
                ranks.remap(&partitions, &self.node);
                self.attend_ranks(group, now);
            }
            None if partitions.map().is_some() => {
                queue.ranks = Ranks::of(&partitions, &self.node);
                self.watch(group, now);
            }
            Some(_) => self.attend_home_alone(group, now),
            None => {}
        }
    }

    /// The queue has one partition again.
    fn attend_home_alone(&mut self, group: QueueNumber, now: Instant) {
        let Some(queue) = self.membership.queues.get_mut(&group) else {
            return;
        };
        if let Some(ranks) = queue.ranks.take() {
            self.timers.cancel(ranks.timer);
        }
        let members = queue.members.iter();
        let gone = members.filter(|(tag, _)| **tag != Tag::Home);
        let gone: Vec<_> = gone.map(|(_, number)| *number).collect();
        for number in gone {
            self.leave_partition(number);
        }
        self.attend_partition(group, Tag::Home, None, now);
    }

    /// Whether a handler would be free for the queue's messages.
    fn has_free_handlers(&self, queue: &NodeQueue) -> bool {
        let mut members = queue.members.values();
        members.any(|number| self.shares.free_for(*number) > 0)
    }

    /// Takes this node out of the roster, because it takes no more messages of the queue. It keeps
    /// its partitions until its handlers have ended, behind the nodes that attend them now.
    pub(crate) fn leave_roster(&mut self, group: QueueNumber) {
        let Some(queue) = self.membership.queues.get_mut(&group) else {
            return;
        };
        let Some(ranks) = &mut queue.ranks else {
            return;
        };
        self.timers.cancel(ranks.timer.take());
        for number in queue.members.values() {
            if let Some(attended) = self.queues.get_mut(number) {
                attended.rank = Some(LAST_RANK);
                self.timers.set_rank(*number, Some(LAST_RANK));
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

    /// Watches the roster now.
    pub(crate) fn watch(&mut self, group: QueueNumber, now: Instant) {
        if self.wake.is_none() {
            return; // the node is about to end
        }
        self.make_deputies(group);
        let help = self.overdue_partitions(group, now);
        let Some(queue) = self.membership.queues.get_mut(&group) else {
            return;
        };
        let mut at = vec![Arc::clone(&queue.home)];
        let Some(ranks) = queue.ranks.as_mut().filter(|ranks| !ranks.is_watching) else {
            return;
        };
        at.extend_from_slice(ranks.deputies());
        ranks.is_watching = true;
        ranks.timer = None;
        let (node, known) = (self.node.clone(), (ranks.watched_at, ranks.number));
        let sender = self.sender.clone();
        self.tasks.spawn(Task::Call, async move {
            let (tag, watched) = watch_first(&at, &node, known, &help).await;
            let _ = sender.send(Event::Watched(group, now, tag, watched));
        });
    }

    /// The partitions that this node leads and cannot keep up with.
    fn overdue_partitions(&self, group: QueueNumber, now: Instant) -> Vec<Tag> {
        let Some(queue) = self.membership.queues.get(&group) else {
            return Vec::new();
        };
        if self.has_free_handlers(queue) {
            return Vec::new();
        }
        let is_overdue = |number: &QueueNumber| {
            self.timers.is_leader(*number, now)
                && self.queues.get(number).is_some_and(|attended| {
                    attended.takes_messages() && attended.oldest.waited(now) >= OVERDUE
                })
        };
        let members = queue.members.iter();
        let overdue = members.filter(|(_, number)| is_overdue(number));
        overdue.map(|(tag, _)| *tag).collect()
    }

    /// A partition answered a watch that was sent at `sent`.
    pub(crate) fn watched(
        &mut self,
        group: QueueNumber,
        sent: Instant,
        (tag, result): (Tag, Result<Watched, Error>),
        now: Instant,
    ) {
        let Some(queue) = self.membership.queues.get(&group) else {
            return;
        };
        let has_free_handlers = self.has_free_handlers(queue);
        let Some(queue) = self.membership.queues.get_mut(&group) else {
            return;
        };
        let Some(ranks) = queue.ranks.as_mut() else {
            return;
        };
        ranks.is_watching = false;
        if self.wake.is_none() || queue.removal.is_some() {
            // The watch may have reached Redis after the node had left the roster.
            return self.leave_roster(group);
        }
        let interval = ranks.watch_interval(fastrand::f64());
        let at = match result {
            Ok(watched) => {
                ranks.watched(tag, &watched, has_free_handlers, now);
                self.membership.crowd.saw(ranks.nodes());
                self.attend_ranks(group, now);
                self.compare_epoch(group, tag, watched.header.epoch);
                sent + interval
            }
            Err(error) => {
                ranks.failures = ranks.failures.saturating_add(1);
                let pause = reconnect_delays().delay(ranks.failures, fastrand::f64());
                let then = "the node goes on with the last roster";
                events::call_failed(queue.name(), "watch", &error, then);
                now + if error.is_retryable() {
                    pause
                } else {
                    interval
                }
            }
        };
        let timer = self.timers.schedule(group, Action::Watch, at);
        let queue = self.membership.queues.get_mut(&group);
        if let Some(ranks) = queue.and_then(|queue| queue.ranks.as_mut()) {
            ranks.timer = timer;
        }
    }

    /// Attends what the roster gives to this node, and leaves the rest.
    pub(crate) fn attend_ranks(&mut self, group: QueueNumber, now: Instant) {
        let Some(queue) = self.membership.queues.get(&group) else {
            return;
        };
        let ranks = queue.ranks.as_ref().filter(|_| queue.removal.is_none());
        let Some(wanted) = ranks.and_then(Ranks::attended) else {
            return;
        };
        let members = queue.members.iter();
        let gone = members.filter(|(tag, _)| !wanted.contains_key(tag));
        let gone: Vec<_> = gone.map(|(_, number)| *number).collect();
        for number in gone {
            self.leave_partition(number);
        }
        for (tag, rank) in wanted {
            self.attend_partition(group, tag, Some(rank), now);
        }
    }

    /// Attends the home of a queue without a map, unless it is attended already.
    pub(crate) fn attend_only_home(&mut self, group: QueueNumber, now: Instant) {
        let queue = self.membership.queues.get(&group);
        let has_map = queue.is_none_or(|it| it.ranks.is_some() || it.removal.is_some());
        if !has_map {
            self.attend_partition(group, Tag::Home, None, now);
        }
    }

    /// Attends a partition from now on, at this rank; `None`: it is the only one.
    fn attend_partition(
        &mut self,
        group: QueueNumber,
        tag: Tag,
        rank: Option<usize>,
        now: Instant,
    ) {
        if self.wake.is_none() {
            return; // the node is about to end
        }
        let Some(queue) = self.membership.queues.get(&group) else {
            return;
        };
        if let Some(number) = queue.members.get(&tag) {
            if let Some(attended) = self.queues.get_mut(number) {
                attended.rank = rank;
                self.timers.set_rank(*number, rank);
            }
            return;
        }
        if let Some(number) = queue.leaving.get(&tag).copied() {
            // Its handlers have not ended; if the leave is in flight already, it is attended again
            // after that.
            self.stay_in_partition(number, rank, now);
            return;
        }
        let home = Arc::clone(&queue.home);
        let partition = match (tag, &queue.ranks) {
            (Tag::Home, _) => home,
            (_, Some(ranks)) => {
                let list = ranks.partitions.list().iter();
                let Some(partition) = { list }.find(|partition| partition.tag() == tag) else {
                    return;
                };
                self.on_servers(&Arc::clone(partition))
            }
            _ => return,
        };
        let number = self.membership.next_number();
        self.add_member(group, number, partition, rank, now);
    }

    /// The partitions whose rosters have this node.
    pub(crate) fn rosters(&self) -> Vec<Arc<Partition>> {
        let queues = self.membership.queues.values();
        queues.flat_map(NodeQueue::rosters).collect()
    }
}

/// Takes a node out of a roster.
pub(crate) async fn unwatch(home: &Partition, node: &str) {
    if let Err(error) = home.unwatch(node).await {
        let then = "Redis forgets the node after 3 s";
        events::call_failed(home.queue_name(), "unwatch", &error, then);
    }
}

#[cfg(test)]
mod tests;

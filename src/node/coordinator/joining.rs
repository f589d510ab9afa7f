//! Makes the node attend queues: those that it starts with, those of its patterns, and those that
//! are added while it runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Applied, Error, ErrorKind};
use crate::node::consumers::handling::HandlerContext;
use crate::node::coordinator::settings::NodeCommand;
use crate::node::coordinator::{Coordinator, PACED_BEATS};
use crate::node::hints::scanner::Found;
use crate::node::hints::subscriptions::{Channel, SubscriptionChange};
use crate::node::runtime::tasks::NodeSupervisor;
use crate::node::state::partition::{NodePartition, Phase};
use crate::node::state::queue::{NodeQueue, QueueEntry};
use crate::node::{PartitionId, QueueId};
use crate::partition::Partition;
use crate::protocol::limits;
use crate::protocol::partition_map::Tag;
use crate::telemetry::events;

impl Coordinator {
    /// Attends the queues that the user named at the start.
    pub(crate) fn attend_initial(&mut self, now: Instant) {
        for entry in std::mem::take(&mut self.membership.initial) {
            let name = entry.router.queue_name().to_owned();
            // This cannot fail: the builder of the worker has checked names and shares.
            if let Err(error) = self.attend(entry, None, now) {
                events::queue_refused(&name, &error);
            }
        }
    }

    pub(crate) fn command(&mut self, command: NodeCommand, now: Instant) {
        // The send of a reply fails if the caller dropped its future.
        match command {
            NodeCommand::Add(entry, reply) => {
                let _ = reply.send(self.attend(*entry, None, now));
            }
            NodeCommand::Remove(name, reply) => self.remove(&name, Some(reply), now),
            NodeCommand::AddPulls(entry, reply) => {
                let _ = reply.send(self.attend_for_pulls(*entry, now));
            }
            NodeCommand::Pulled(name) => self.pulled(&name, now),
        }
    }

    /// Handles a report of the scanner: the queues of the patterns.
    pub(crate) fn found(&mut self, found: Found, now: Instant) {
        if self.wake.is_none() {
            return; // the node is about to end
        }
        let leaving = self.removed_names();
        for (name, &pattern) in &found.names {
            // A queue that the node is still leaving is skipped here; a later pass finds it again.
            if self.membership.by_name.contains_key(name)
                || self.membership.excluded.contains(name)
                || leaving.contains(name)
            {
                continue;
            }
            let Some(entry) = self.membership.patterns.get(pattern) else {
                return;
            };
            let entry = (entry.make)(name);
            let attended = entry.and_then(|entry| self.attend(entry, Some(pattern), now));
            if let Err(error) = attended {
                events::queue_refused(name, &error);
            }
        }
        if !found.is_complete {
            return;
        }
        let queues = self.membership.queues.values();
        let gone = queues.filter(|queue| {
            queue.pattern.is_some()
                && queue.removal.is_none()
                && !found.names.contains_key(queue.name())
        });
        let gone: Vec<_> = gone.map(|queue| queue.name().to_owned()).collect();
        for name in gone {
            self.remove(&name, None, now);
        }
    }

    /// Makes the node attend a queue: first its home, which says whether the queue has a map.
    pub(crate) fn attend(
        &mut self,
        entry: QueueEntry,
        pattern: Option<usize>,
        now: Instant,
    ) -> Result<(), Error> {
        if self.wake.is_none() {
            let message = "the worker has ended, or is about to";
            return Err(Error::new(ErrorKind::Unavailable, Applied::No, message));
        }
        let name = entry.router.queue_name().to_owned();
        if let Some(id) = self.membership.by_name.get(&name) {
            let queue = self.membership.queues.get(id);
            let why = queue
                .and_then(|queue| queue.pattern)
                .map_or("", |_| ", because a pattern matches it");
            return Err(Error::invalid(format!(
                "queue {name}: the worker attends it already{why}"
            )));
        }
        if self.removed_names().contains(&name) {
            return Err(Error::invalid(format!(
                "queue {name}: the worker is still leaving it: await its removal first"
            )));
        }
        let lease_ms = limits::lease_ms(entry.lease)?;
        let queue_id = self.membership.ids.next_queue();
        self.shares
            .add(queue_id, entry.share)
            .map_err(|error| Error::invalid(format!("queue {name}: {error}")))?;
        self.membership.excluded.remove(&name);
        let home = self.on_servers(&entry.router.own_home());
        let context = HandlerContext {
            retry: entry.retry,
            time_limit: entry.time_limit,
            lease: entry.lease,
            lease_ms,
            max_handlers: entry.share.max.min(self.concurrency),
            ..self.membership.context.clone()
        };
        let queue = NodeQueue {
            entry,
            context: Arc::new(context),
            pattern,
            home,
            partitions: BTreeMap::new(),
            open: 0,
            is_drained: false,
            removal: None,
            watch: None,
            moved: None,
            is_reading_map: false,
        };
        self.membership.queues.insert(queue_id, queue);
        events::worker_started(&name, &self.node, self.concurrency, lease_ms);
        #[cfg(any(test, feature = "harness"))]
        self.tasks.attends(&name);
        self.membership.by_name.insert(name, queue_id);
        self.join(queue_id, Tag::Home, None, now);
        if pattern.is_none() {
            self.search_map(queue_id);
        }
        Ok(())
    }

    /// This partition, reached over the node's own connections.
    pub(crate) fn on_servers(&self, partition: &Partition) -> Arc<Partition> {
        let supervisor = NodeSupervisor {
            tasks: self.tasks.clone(),
            _thread: Arc::clone(&self.membership.context.thread),
        };
        Arc::new(partition.on_servers(&self.membership.servers, Arc::new(supervisor)))
    }

    /// Makes the node attend a partition of a queue, at this rank; `None` for the only partition.
    /// If the node's leave is in flight, it attends the partition after that.
    pub(crate) fn join(&mut self, queue_id: QueueId, tag: Tag, rank: Option<usize>, now: Instant) {
        if self.wake.is_none() {
            return; // the node is about to end
        }
        // The state of the partition from before, if the node is leaving it and its handlers have
        // not ended.
        let known = self.membership.queues.get(&queue_id);
        let known = known.and_then(|queue| queue.partitions.get(&tag)).copied();
        let phase = known
            .and_then(|id| self.partitions.get(&id))
            .map(|it| it.phase);
        let id = match (known, phase) {
            (Some(id), Some(Phase::Attending | Phase::Draining)) => id,
            (Some(_), _) => return,
            (None, _) => match self.new_partition(queue_id, tag, now) {
                Some(id) => id,
                None => return,
            },
        };
        let queue = self.membership.queues.get(&queue_id);
        let (Some(queue), Some(partition)) = (queue, self.partitions.get_mut(&id)) else {
            return;
        };
        partition.timers.rank = rank;
        partition.is_drained = queue.is_drained;
        if phase == Some(Phase::Attending) {
            return;
        }
        partition.phase = Phase::Attending;

        // The partition gets a place in the pop of wake-up lists if the user named the queue and a
        // place is left. Otherwise it may be parked.
        let is_fixed = queue.pattern.is_none() && self.wake_lists.add_named(id);
        let silence = Some(self.membership.silence);
        if phase.is_none() {
            partition.silence = silence.filter(|silence| !is_fixed && !silence.is_zero());
        } else {
            self.membership.draining = self.membership.draining.saturating_sub(1);
        }

        // When to send the first beat. Many queues may be added at once, so beats that need not
        // claim at once are spread.
        let beat_at = if phase.is_some() || is_fixed {
            now
        } else {
            let part = u64::from(id.0) % u64::from(PACED_BEATS);
            now + Duration::from_millis(part * 1_000 / u64::from(PACED_BEATS))
        };
        partition.timers.beat_at(beat_at, &mut self.timers, now);

        // Sets up notices, handlers and the first claim. The claim needs no token: messages may
        // have been pushed before this node listened.
        let remote = Arc::clone(&partition.remote);
        self.subscribe(id, &remote);
        self.open(id);
        if phase.is_some() || is_fixed {
            self.want(id, now);
        }
    }

    /// Creates the state of a partition that the node does not attend.
    fn new_partition(&mut self, queue_id: QueueId, tag: Tag, now: Instant) -> Option<PartitionId> {
        let queue = self.membership.queues.get(&queue_id)?;
        let remote = match (tag, &queue.watch) {
            (Tag::Home, _) => Arc::clone(&queue.home),
            (_, watch) => {
                let mut list = watch.as_ref()?.partitions.near_list().iter();
                self.on_servers(list.find(|partition| partition.tag() == tag)?)
            }
        };
        let queue = self.membership.queues.get_mut(&queue_id)?;
        let id = self.membership.ids.next_partition();
        queue.partitions.insert(tag, id);
        let (consumer, context) = (queue.entry.consumer.clone(), Arc::clone(&queue.context));
        let partition = NodePartition::new(
            (queue_id, id),
            Arc::clone(&remote),
            consumer,
            context,
            &self.ends,
            now,
        );
        // If the coordinator panics, the worker leaves all registered partitions. Probes read the
        // health.
        self.membership.registered.add(&remote);
        self.membership.health.added(partition.name(), id);
        self.partitions.insert(id, partition);
        Some(id)
    }

    /// Tells the shares whether the partition takes messages. While no partition of a queue does,
    /// other queues have its share.
    pub(crate) fn open(&mut self, id: PartitionId) {
        let Some(partition) = self.partitions.get_mut(&id) else {
            return;
        };
        // A batch that waits for handlers gets them, whether further messages are taken or not.
        let is_open = partition.takes_messages() || partition.consumer.waiting() > 0;
        if std::mem::replace(&mut partition.is_open, is_open) == is_open {
            return;
        }
        let queue_id = partition.queue;
        if let Some(queue) = self.membership.queues.get_mut(&queue_id) {
            queue.open = if is_open {
                queue.open + 1
            } else {
                queue.open.saturating_sub(1)
            };
            self.shares.set_paused(queue_id, queue.open == 0);
        }
    }

    /// The partitions of a queue that the node attends and is not leaving.
    pub(crate) fn attended(&self, queue: &NodeQueue) -> impl Iterator<Item = &NodePartition> {
        let partitions = queue.partitions.values();
        let partitions = partitions.filter_map(|id| self.partitions.get(id));
        partitions.filter(|partition| partition.is_attending())
    }

    pub(crate) fn subscribe(&self, id: PartitionId, partition: &Partition) {
        let channel = Channel {
            queue_name: partition.queue_name().to_owned(),
            name: partition.keys().notice.clone(),
            route: partition.route().clone(),
        };
        let change = SubscriptionChange::Add(id, channel);
        // The send succeeds as long as the subscription's task runs.
        let _ = self.membership.subscriptions.send(change);
    }
}

#[cfg(test)]
pub(crate) mod tests;

//! Which queues a node attends: those it starts with, those of its patterns, and those that are
//! added and removed while it runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Applied, Error, ErrorKind};
use crate::node::consumers::handling::HandlerContext;
use crate::node::consumers::slots::PartitionSlots;
use crate::node::coordinator::settings::NodeCommand;
use crate::node::coordinator::{Coordinator, PACED_BEATS};
use crate::node::hints::scanner::Found;
use crate::node::hints::subscriptions::{Channel, SubscriptionChange};
use crate::node::runtime::tasks::NodeSupervisor;
use crate::node::state::partition::{NodePartition, Setup};
use crate::node::state::queue::{NodeQueue, QueueEntry};
use crate::node::{PartitionId, QueueId};
use crate::partition::Partition;
use crate::protocol::limits;
use crate::telemetry::events;

impl Coordinator {
    /// Attends the queues that the user named at the start.
    pub(crate) fn attend_initial(&mut self, now: Instant) {
        for entry in std::mem::take(&mut self.membership.initial) {
            let name = entry.router.queue_name().to_owned();
            // The builder has checked names and shares.
            if let Err(error) = self.attend(entry, None, now) {
                events::queue_refused(&name, &error);
            }
        }
    }

    pub(crate) fn command(&mut self, command: NodeCommand, now: Instant) {
        // A caller that dropped its future needs no reply.
        match command {
            NodeCommand::Add(entry, reply) => {
                let _ = reply.send(self.attend(*entry, None, now));
            }
            NodeCommand::Remove(name, reply) => self.remove(&name, Some(reply)),
            NodeCommand::AddPulls(entry, reply) => {
                let _ = reply.send(self.attend_for_pulls(*entry, now));
            }
            NodeCommand::Pulled(name) => self.pulled(&name, now),
        }
    }

    /// The scanner found queues of patterns.
    pub(crate) fn found(&mut self, found: Found, now: Instant) {
        if self.wake.is_none() {
            return; // the node is about to end
        }
        let leaving = self.removed_names();
        for (name, &pattern) in &found.names {
            // A later pass finds a queue again that the node is still leaving.
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
            self.remove(&name, None);
        }
    }

    /// Attends a queue from now on: its home first, which tells whether the queue has a map.
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
            .add_group(queue_id, entry.share)
            .map_err(|error| Error::invalid(format!("queue {name}: {error}")))?;
        self.membership.excluded.remove(&name);
        let home = self.on_servers(&entry.router.home());
        let queue = NodeQueue {
            entry,
            lease_ms,
            pattern,
            home: Arc::clone(&home),
            members: BTreeMap::new(),
            leaving: BTreeMap::new(),
            removal: None,
            watch: None,
            is_reading_map: false,
        };
        self.membership.queues.insert(queue_id, queue);
        events::worker_started(&name, &self.node, self.concurrency, lease_ms);
        #[cfg(any(test, feature = "harness"))]
        self.tasks.attends(&name);
        self.membership.by_name.insert(name, queue_id);
        self.add_member(queue_id, home, None, now);
        if pattern.is_none() {
            self.search_map(queue_id);
        }
        Ok(())
    }

    /// This partition on the connections of the node.
    pub(crate) fn on_servers(&self, partition: &Partition) -> Arc<Partition> {
        let supervisor = NodeSupervisor {
            tasks: self.tasks.clone(),
            _thread: Arc::clone(&self.membership.context.thread),
        };
        Arc::new(partition.on_servers(&self.membership.servers, Arc::new(supervisor)))
    }

    /// Attends a partition of a queue from now on.
    pub(crate) fn add_member(
        &mut self,
        queue_id: QueueId,
        remote: Arc<Partition>,
        rank: Option<usize>,
        now: Instant,
    ) {
        let Some(queue) = self.membership.queues.get_mut(&queue_id) else {
            return;
        };
        let id = self.membership.ids.next_partition();
        queue.members.insert(remote.tag(), id);
        let is_named = queue.pattern.is_none();
        let is_fixed = is_named && self.wake_lists.add_named(id);
        let entry = &queue.entry;
        let context = HandlerContext {
            retry: entry.retry,
            time_limit: entry.time_limit,
            lease: entry.lease,
            ..self.membership.context.clone()
        };
        let slots = PartitionSlots::new(&self.slots);
        let mut partition = NodePartition::new(Setup {
            id,
            queue: queue_id,
            rank,
            remote: Arc::clone(&remote),
            consumer: entry.consumer.clone(),
            context: Arc::new(context),
            lease: entry.lease,
            lease_ms: queue.lease_ms,
            max_handlers: entry.share.max.min(self.concurrency),
            slots: Arc::clone(&slots),
            silence: Some(self.membership.silence)
                .filter(|silence| !is_fixed && !silence.is_zero()),
            now,
        });
        // Many queues may be added at once: spread the beats of those that need not claim at once.
        let added = match is_fixed {
            true => 0,
            false => u64::from(id.0) % u64::from(PACED_BEATS),
        };
        let beat_at = now + Duration::from_millis(added * 1_000 / u64::from(PACED_BEATS));
        partition.timers.beat_at(beat_at, &mut self.timers, now);
        self.membership.registered.add(&remote);
        self.membership.health.added(partition.name(), id);
        self.partitions.insert(id, partition);
        self.shares.add(id, queue_id, slots);
        self.subscribe(id, &remote);
        if is_fixed {
            // The first claim needs no token: messages may have been pushed before this node
            // listened.
            self.want(id, now);
        }
    }

    pub(crate) fn subscribe(&self, id: PartitionId, partition: &Partition) {
        let channel = Channel {
            queue_name: partition.queue_name().to_owned(),
            name: partition.keys().notice.clone(),
            route: partition.route().clone(),
        };
        let change = SubscriptionChange::Add(id, channel);
        // The subscription runs as long as this task.
        let _ = self.membership.subscriptions.send(change);
    }
}

#[cfg(test)]
pub(crate) mod tests;

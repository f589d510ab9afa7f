//! Makes the node give up queues and leave partitions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use crate::error::Error;
use crate::node::coordinator::Coordinator;
use crate::node::coordinator::event::{Event, Reply};
use crate::node::coordinator::membership::{send_leave, unwatch};
use crate::node::coordinator::settings::CommandReply;
use crate::node::hints::subscriptions::SubscriptionChange;
use crate::node::runtime::task::Task;
use crate::node::state::partition::Phase;
use crate::node::state::timers::Action;
use crate::node::{PartitionId, QueueId};
use crate::telemetry::events;

impl Coordinator {
    /// The names of removed queues whose handlers have not ended.
    pub(crate) fn removed_names(&self) -> BTreeSet<String> {
        if !self.membership.is_draining() {
            return BTreeSet::new();
        }
        let queues = self.membership.queues.values();
        let removed = queues.filter(|queue| queue.removal.is_some());
        removed.map(|queue| queue.name().to_owned()).collect()
    }

    /// Stops taking messages of the queue, and leaves it when its handlers have ended.
    pub(crate) fn remove(&mut self, name: &str, reply: Option<CommandReply>, now: Instant) {
        let Some(queue_id) = self.membership.by_name.remove(name) else {
            if let Some(reply) = reply {
                let error = Error::invalid(format!("queue {name}: the worker does not attend it"));
                let _ = reply.send(Err(error));
            }
            return;
        };
        if reply.is_some() && !self.membership.patterns.is_empty() {
            self.membership.excluded.insert(name.to_owned());
        }
        let Some(queue) = self.membership.queues.get_mut(&queue_id) else {
            return;
        };
        queue.removal = Some(reply.map(teller));
        queue.entry.consumer.close();
        let partitions: Vec<_> = queue.partitions.values().copied().collect();
        self.leave_roster(queue_id);
        for id in partitions {
            self.leave(id, now);
        }
        self.end_removed(queue_id);
    }

    /// Takes the next step of leaving a partition. Called again when what the step waits for has
    /// ended.
    pub(crate) fn leave(&mut self, id: PartitionId, now: Instant) {
        let Some(partition) = self.partitions.get_mut(&id) else {
            return;
        };
        match partition.phase {
            // Step 1: the node takes no more messages of the partition.
            Phase::Attending => {
                partition.phase = Phase::Draining;
                self.membership.draining += 1;
                partition.claim.stop();
                if let Some(pulls) = partition.consumer.pulls() {
                    pulls.forget(id);
                }
                self.open(id);
                self.return_token(id);
                self.wake_lists.remove(id);
                let change = SubscriptionChange::Remove(id);
                let _ = self.membership.subscriptions.send(change);
            }
            // Step 2: its handlers and settlements have ended, so the node sends its leave. A beat
            // in flight must not reach Redis after the leave: it would register the node again.
            Phase::Draining if partition.has_ended() => {
                if partition.timers.is_in_flight(Action::Beat) {
                    return;
                }
                partition.timers.close(&mut self.timers);
                partition.phase = Phase::Leaving;
                let node = self.node.clone();
                self.call(id, move |partition| async move {
                    send_leave(&partition, &node).await;
                    Reply::Left
                });
            }
            Phase::Draining | Phase::Leaving => {}
            // Step 3: the leave was sent, or failed. Nothing of the partition is left.
            Phase::Left => {
                let (queue_id, remote) = (partition.queue, Arc::clone(&partition.remote));
                debug_assert!(partition.timers.is_closed(), "its timers would stay");
                debug_assert!(!partition.is_busy(), "its handlers would stay");
                self.partitions.remove(&id);
                self.competing.remove(&id);
                self.membership.draining = self.membership.draining.saturating_sub(1);
                self.membership.health.left(remote.queue_name(), id);
                self.membership.registered.remove(&remote);
                if let Some(queue) = self.membership.queues.get_mut(&queue_id) {
                    queue.partitions.retain(|_, other| *other != id);
                }
                self.end_removed(queue_id);
                // The roster may have given the partition back to this node meanwhile, or the queue
                // may have no other.
                self.attend_ranks(queue_id, now);
                self.attend_only_home(queue_id, now);
            }
        }
    }

    /// Takes the next step for all partitions that the node is leaving.
    pub(crate) fn end_drained(&mut self, now: Instant) {
        if !self.membership.is_draining() {
            return;
        }
        let draining = self.partitions.values();
        let draining = draining.filter(|partition| partition.phase == Phase::Draining);
        for id in draining.map(|partition| partition.id).collect::<Vec<_>>() {
            self.leave(id, now);
        }
    }

    /// Ends a removed queue of which no partition is left.
    fn end_removed(&mut self, queue_id: QueueId) {
        let Some(queue) = self
            .membership
            .queues
            .get(&queue_id)
            .filter(|queue| queue.is_over())
        else {
            return;
        };
        let name = queue.name().to_owned();
        for at in queue.rosters() {
            let node = self.node.clone();
            self.tasks.spawn(Task::Call, async move {
                unwatch(&at, &node).await;
            });
        }
        self.shares.remove(queue_id);
        self.membership.health.removed(&name);
        events::worker_stopped(&name, &self.node);
        let queue = self.membership.queues.remove(&queue_id);
        if let Some(tell) = queue.and_then(|queue| queue.removal).flatten() {
            tell();
        }
    }

    fn is_beating(&mut self, id: PartitionId) -> bool {
        let partition = self.partitions.get_mut(&id);
        partition.is_some_and(|partition| partition.timers.is_in_flight(Action::Beat))
    }

    /// Leaves all queues, because the node ends.
    pub(crate) async fn leave_all(&mut self, mut events: UnboundedReceiver<Event>) {
        // A beat in flight must not reach Redis after the leave: it would register the node again.
        let tasks = self.tasks.clone();
        let ids: Vec<_> = self.partitions.keys().copied().collect();
        for id in ids {
            while self.is_beating(id) {
                tokio::select! {
                    Some(event) = events.recv() => self.handle(event),
                    // No reply comes if the task of the beat panicked.
                    () = tasks.happened() => break,
                }
            }
        }
        // A dropped worker may have claims in flight. Replies that come later cannot be sent, so
        // the tasks of their claims release the messages. For replies that came, dropping the
        // handlers releases them.
        events.close();
        while let Ok(event) = events.try_recv() {
            self.handle(event);
        }
        let mut leaves = JoinSet::new();
        for at in self.rosters() {
            let node = self.node.clone();
            leaves.spawn(async move { unwatch(&at, &node).await });
        }
        for (_, partition) in self.partitions.drain() {
            let node = self.node.clone();
            let registered = Arc::clone(&self.membership.registered);
            leaves.spawn(async move {
                send_leave(&partition.remote, &node).await;
                registered.remove(&partition.remote);
            });
        }
        leaves.join_all().await;
        for queue in self.membership.queues.values() {
            events::worker_stopped(queue.name(), &self.node);
        }
    }
}

/// Tells the caller who removed a queue that the node has left it.
fn teller(reply: CommandReply) -> Box<dyn FnOnce() + Send> {
    // The send fails if the caller dropped its future.
    Box::new(move || drop(reply.send(Ok(()))))
}

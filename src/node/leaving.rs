//! How a node gives up queues, and leaves partitions.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::error::Error;
use crate::node::attended_queue::{Phase, Removal};
use crate::node::coordinator::{Coordinator, leave};
use crate::node::event::{QueueNumber, Reply};
use crate::node::rosters::unwatch;
use crate::node::subscriptions::SubscriptionChange;
use crate::node::tasks::Task;
use crate::node::timers::Action;
use crate::node::wakes::WakeUps;
use crate::partition::Partition;
use crate::telemetry::events;

impl Coordinator {
    /// The queues that were removed and whose handlers have not ended.
    pub(crate) fn removed_names(&self) -> BTreeSet<String> {
        if !self.membership.is_draining() {
            return BTreeSet::new();
        }
        let queues = self.membership.queues.values();
        let removed = queues.filter(|queue| queue.removal.is_some());
        removed.map(|queue| queue.name().to_owned()).collect()
    }

    /// Takes no more messages of the queue, and leaves it when its handlers have ended.
    pub(crate) fn remove(&mut self, name: &str, reply: Removal) {
        let Some(group) = self.membership.numbers.remove(name) else {
            if let Some(reply) = reply {
                let error = Error::invalid(format!("queue {name}: the worker does not attend it"));
                let _ = reply.send(Err(error));
            }
            return;
        };
        if reply.is_some() && !self.membership.patterns.is_empty() {
            self.membership.excluded.insert(name.to_owned());
        }
        let Some(queue) = self.membership.queues.get_mut(&group) else {
            return;
        };
        queue.removal = Some(reply);
        queue.entry.handling.close();
        let members: Vec<_> = queue.members.values().copied().collect();
        self.leave_roster(group);
        for number in members {
            self.leave_partition(number);
        }
        self.end_removed(group);
    }

    /// Takes no more messages of a partition, and leaves it when its handlers have ended.
    pub(crate) fn leave_partition(&mut self, number: QueueNumber) {
        let Some(attended) = self.queues.get_mut(&number) else {
            return;
        };
        attended.phase = Phase::Draining;
        attended.claim.stop();
        if let Some(pulls) = Arc::clone(&attended.handling).pulls() {
            pulls.forget(number);
        }
        let (group, tag) = (attended.group, attended.partition.tag());
        if let Some(queue) = self.membership.queues.get_mut(&group) {
            queue.members.remove(&tag);
            queue.leaving.insert(tag, number);
        }
        self.membership.draining += 1;
        self.wanting.remove(&number);
        self.shares.set_paused(number, true);
        self.return_token(number);
        self.attention.remove(number);
        let _ = self
            .membership
            .subscriptions
            .send(SubscriptionChange::Remove(number));
    }

    /// Attends a partition again whose handlers have not ended since the node began to leave it.
    pub(crate) fn stay_in_partition(
        &mut self,
        number: QueueNumber,
        rank: Option<usize>,
        now: Instant,
    ) {
        let Some(attended) = self.queues.get_mut(&number) else {
            return;
        };
        if !matches!(attended.phase, Phase::Draining) {
            return;
        }
        attended.phase = Phase::Attending;
        attended.rank = rank;
        let (group, partition) = (attended.group, Arc::clone(&attended.partition));
        if let Some(queue) = self.membership.queues.get_mut(&group) {
            queue.leaving.remove(&partition.tag());
            queue.members.insert(partition.tag(), number);
            if queue.pattern.is_none() {
                self.attention.add_named(number);
            }
        }
        self.membership.draining = self.membership.draining.saturating_sub(1);
        self.shares.set_paused(number, false);
        self.timers.set_rank(number, rank);
        self.subscribe(number, &partition);
        self.timers.beat_at(number, now, now);
        self.want(number, now);
    }

    /// Leaves the partitions that have no handlers and no unsettled deliveries any more.
    pub(crate) fn end_drained(&mut self) {
        if !self.membership.is_draining() {
            return;
        }
        let mut drained = Vec::new();
        for (number, queue) in &self.queues {
            let is_idle = !queue.claim.is_in_flight()
                && !self.lost_claims.must_look_up(*number)
                && self.shares.running(*number) == 0
                && queue.slots.unsettled() == 0;
            if is_idle && matches!(queue.phase, Phase::Draining) {
                drained.push(*number);
            }
        }
        for number in drained {
            // A beat in flight must not reach Redis after the leave: it would register the node
            // again.
            if self.timers.is_in_flight(number, Action::Beat) {
                continue;
            }
            self.timers.remove(number);
            let Some(queue) = self.queues.get_mut(&number) else {
                continue;
            };
            queue.phase = Phase::Leaving;
            let node = self.node.clone();
            self.call(number, move |partition| async move {
                leave(&partition, &node).await;
                Reply::Left
            });
        }
    }

    /// The node has left a partition.
    pub(crate) fn left(&mut self, number: QueueNumber, now: Instant) {
        let Some(attended) = self.queues.remove(&number) else {
            return;
        };
        let covered: BTreeSet<_> = self.wake.iter().flat_map(WakeUps::last_covered).collect();
        let left = &mut self.membership.left;
        left.insert(number, Arc::clone(&attended.partition));
        left.retain(|number, _| covered.contains(number));
        self.membership.draining = self.membership.draining.saturating_sub(1);
        self.shares.remove(number, now);
        self.busy.remove(&number);
        self.membership.health.left(attended.name(), number);
        self.membership.registered.remove(&attended.partition);
        let group = attended.group;
        if let Some(queue) = self.membership.queues.get_mut(&group) {
            queue.leaving.remove(&attended.partition.tag());
        }
        self.end_removed(group);
        // The roster may have given the partition back meanwhile, or the queue has no more than it.
        self.attend_ranks(group, now);
        self.attend_only_home(group, now);
    }

    /// Ends a removed queue of which nothing is left.
    fn end_removed(&mut self, group: QueueNumber) {
        let Some(queue) = self
            .membership
            .queues
            .get(&group)
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
        self.shares.remove_group(group);
        self.membership.health.removed(&name);
        events::worker_stopped(&name, &self.node);
        let queue = self.membership.queues.remove(&group);
        if let Some(reply) = queue.and_then(|queue| queue.removal).flatten() {
            let _ = reply.send(Ok(()));
        }
    }
}

/// The partitions in which Redis counts the node as alive, by their wake-up lists. If the coordinator
/// panics, the worker tells Redis in its place that the node leaves them.
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

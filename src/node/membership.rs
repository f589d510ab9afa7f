//! Which queues a node attends: those it starts with, those of its patterns, and those that are
//! added and removed while it runs.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;

use crate::error::Error;
use crate::node::attended_queue::{AttendedQueue, Phase, Removal, Setup};
use crate::node::commands::{NodeCommand, PatternEntry, QueueEntry};
use crate::node::coordinator::{Coordinator, PACED_BEATS, leave};
use crate::node::event::Reply;
use crate::node::handling::HandlerContext;
use crate::node::health::SharedHealth;
use crate::node::queue_number::QueueNumber;
use crate::node::scanner::Found;
use crate::node::slots::QueueSlots;
use crate::node::subscriptions::{Channel, SubscriptionChange};
use crate::node::tasks::NodeSupervisor;
use crate::node::timers::Action;
use crate::node::wakes::WakeUps;
use crate::partition::Partition;
use crate::protocol::limits;
use crate::server::servers::Servers;
use crate::telemetry::events;

/// What the node needs to attend further queues.
pub(crate) struct Membership {
    /// The queues to start with.
    pub(crate) initial: Vec<QueueEntry>,
    pub(crate) patterns: Vec<PatternEntry>,
    /// For how long the node may be silent about a queue in which nothing happens.
    pub(crate) silence: Duration,
    pub(crate) health: Arc<SharedHealth>,
    /// The connections of the node.
    pub(crate) servers: Arc<Servers>,
    /// For the handlers of every queue.
    pub(crate) context: HandlerContext,
    pub(crate) registered: Arc<Registered>,
    pub(crate) subscriptions: UnboundedSender<SubscriptionChange>,
    pub(crate) numbers: HashMap<String, Member>,
    /// Queues that the user removed: no scan adds them again.
    pub(crate) excluded: BTreeSet<String>,
    /// The number of the last queue.
    pub(crate) last: u32,
    /// How many queues were removed and still have handlers.
    pub(crate) draining: usize,
    /// The queues that the node has left while a pop covered their lists: it gives their tokens
    /// back.
    pub(crate) left: HashMap<QueueNumber, Arc<Partition>>,
}

/// The queues in which Redis counts the node as alive, by name, on the connections of the client:
/// if the coordinator panics, the worker leaves them for it.
#[derive(Default)]
pub(crate) struct Registered(Mutex<HashMap<String, Arc<Partition>>>);

impl Registered {
    pub(crate) fn add(&self, partition: &Arc<Partition>) {
        let name = partition.queue_name().to_owned();
        self.lock().insert(name, Arc::clone(partition));
    }

    /// The node has left this queue.
    pub(crate) fn remove(&self, name: &str) {
        self.lock().remove(name);
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

/// One attended queue.
#[derive(Clone, Copy)]
pub(crate) struct Member {
    number: QueueNumber,
    /// The pattern that found it; `None` if the user named it.
    pattern: Option<usize>,
}

impl Membership {
    pub(crate) fn is_draining(&self) -> bool {
        self.draining > 0
    }
}

impl Coordinator {
    /// Attends the queues that the user named at the start.
    pub(crate) fn attend_initial(&mut self, now: Instant) {
        for entry in std::mem::take(&mut self.membership.initial) {
            let name = entry.partition.queue_name().to_owned();
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
        }
    }

    /// A scan found queues of a pattern.
    pub(crate) fn found(&mut self, found: Found, now: Instant) {
        let pattern = found.pattern;
        let leaving = self.leaving();
        for name in &found.names {
            // A later pass finds a queue again that the node is still leaving.
            if self.membership.numbers.contains_key(name)
                || self.membership.excluded.contains(name)
                || leaving.contains(name)
            {
                continue;
            }
            let Some(entry) = self.membership.patterns.get(pattern) else {
                return;
            };
            let attended =
                (entry.attend)(name).and_then(|entry| self.attend(entry, Some(pattern), now));
            if let Err(error) = attended {
                events::queue_refused(name, &error);
            }
        }
        if !found.is_complete {
            return;
        }
        let gone: Vec<_> = self
            .membership
            .numbers
            .iter()
            .filter(|(name, member)| {
                member.pattern == Some(pattern) && !found.names.contains(*name)
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            self.remove(&name, None);
        }
    }

    /// Attends a queue from now on.
    fn attend(
        &mut self,
        entry: QueueEntry,
        pattern: Option<usize>,
        now: Instant,
    ) -> Result<(), Error> {
        let name = entry.partition.queue_name().to_owned();
        if let Some(member) = self.membership.numbers.get(&name) {
            let why = member
                .pattern
                .map_or("", |_| ", because a pattern matches it");
            return Err(Error::invalid(format!(
                "queue {name}: the worker attends it already{why}"
            )));
        }
        if self.leaving().contains(&name) {
            return Err(Error::invalid(format!(
                "queue {name}: the worker is still leaving it: await its removal first"
            )));
        }
        let number = QueueNumber(self.membership.last + 1);
        let lease_ms = limits::lease_ms(entry.lease)?;
        self.shares
            .add(number, entry.share)
            .map_err(|error| Error::invalid(format!("queue {name}: {error}")))?;
        self.membership.last += 1;
        self.membership.excluded.remove(&name);
        self.membership.registered.add(&entry.partition);
        let is_fixed = pattern.is_none() && self.attention.add_named(number);
        let partition = Arc::new(entry.partition.on_servers(
            &self.membership.servers,
            Arc::new(NodeSupervisor {
                tasks: self.tasks.clone(),
                _thread: Arc::clone(&self.membership.context.thread),
            }),
        ));
        let change = SubscriptionChange::Add(
            number,
            Channel {
                queue_name: name.clone(),
                name: partition.keys().notice.clone(),
                route: partition.route().clone(),
            },
        );
        // The subscription runs as long as this task.
        let _ = self.membership.subscriptions.send(change);
        let context = HandlerContext {
            retry: entry.retry,
            time_limit: entry.time_limit,
            ..self.membership.context.clone()
        };
        let queue = AttendedQueue::new(Setup {
            number,
            partition,
            handling: entry.handling,
            context: Arc::new(context),
            lease: entry.lease,
            lease_ms,
            max_handlers: entry.share.max.min(self.concurrency),
            slots: QueueSlots::new(&self.slots),
            silence: Some(self.membership.silence)
                .filter(|silence| !is_fixed && !silence.is_zero()),
            now,
        });
        events::worker_started(&name, &self.node, self.concurrency, lease_ms);
        #[cfg(any(test, feature = "harness"))]
        self.tasks.attends(&name);
        self.queues.insert(number, queue);
        self.timers.add(number);
        self.membership.health.added(&name);
        self.membership
            .numbers
            .insert(name, Member { number, pattern });
        if is_fixed {
            self.timers.beat_at(number, now, now);
            // The first claim needs no token: messages may have been pushed before this node
            // listened.
            self.want(number, now);
        } else {
            // Many queues may be added at once: spread their beats.
            let added = u64::from(number.0) % u64::from(PACED_BEATS);
            let at = now + Duration::from_millis(added * 1_000 / u64::from(PACED_BEATS));
            self.timers.beat_at(number, at, now);
        }
        Ok(())
    }

    /// The queues that were removed and whose handlers have not ended.
    fn leaving(&self) -> BTreeSet<String> {
        if !self.membership.is_draining() {
            return BTreeSet::new();
        }
        let leaving = self.queues.values().filter(|queue| !queue.is_attending());
        leaving.map(|queue| queue.name().to_owned()).collect()
    }

    /// Takes no more messages of the queue, and leaves it when its handlers have ended.
    fn remove(&mut self, name: &str, reply: Removal) {
        let Some(member) = self.membership.numbers.remove(name) else {
            if let Some(reply) = reply {
                let error = Error::invalid(format!("queue {name}: the worker does not attend it"));
                let _ = reply.send(Err(error));
            }
            return;
        };
        if reply.is_some() && !self.membership.patterns.is_empty() {
            self.membership.excluded.insert(name.to_owned());
        }
        let number = member.number;
        let Some(queue) = self.queues.get_mut(&number) else {
            return;
        };
        queue.phase = Phase::Draining(reply);
        queue.claim.stop();
        queue.held = None;
        queue.handling.close();
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

    /// Leaves the removed queues that have no handlers and no unsettled deliveries any more.
    pub(crate) fn end_drained(&mut self) {
        if !self.membership.is_draining() {
            return;
        }
        let mut drained = Vec::new();
        for (number, queue) in &self.queues {
            let is_idle = !queue.claim.is_in_flight()
                && self.shares.running(*number) == 0
                && queue.slots.unsettled() == 0;
            if is_idle && matches!(queue.phase, Phase::Draining(_)) {
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
            if let Phase::Draining(removal) = &mut queue.phase {
                queue.phase = Phase::Leaving(removal.take());
            }
            let node = self.node.clone();
            self.call(number, move |partition| async move {
                leave(&partition, &node).await;
                Reply::Left
            });
        }
    }

    /// The node has left a removed queue.
    pub(crate) fn left(&mut self, number: QueueNumber) {
        let Some(queue) = self.queues.remove(&number) else {
            return;
        };
        let covered: BTreeSet<_> = self.wake.iter().flat_map(WakeUps::last_covered).collect();
        let left = &mut self.membership.left;
        left.insert(number, Arc::clone(&queue.partition));
        left.retain(|number, _| covered.contains(number));
        self.membership.draining = self.membership.draining.saturating_sub(1);
        self.shares.remove(number);
        self.busy.remove(&number);
        self.membership.health.removed(queue.name());
        self.membership.registered.remove(queue.name());
        events::worker_stopped(queue.name(), &self.node);
        if let Phase::Leaving(Some(reply)) = queue.phase {
            let _ = reply.send(Ok(()));
        }
    }
}

#[cfg(test)]
mod tests;

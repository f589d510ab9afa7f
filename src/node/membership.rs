//! Which queues a node attends: those it starts with, those of its patterns, and those that are
//! added and removed while it runs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::error::{Applied, Error, ErrorKind};
use crate::model::retry::Retry;
use crate::node::attended_queue::{AttendedQueue, Setup};
use crate::node::coordinator::{Coordinator, PACED_BEATS};
use crate::node::event::QueueNumber;
use crate::node::handling::{HandlerContext, Handling};
use crate::node::health::SharedHealth;
use crate::node::leaving::Registered;
use crate::node::node_queue::NodeQueue;
use crate::node::pulls::Pulls;
use crate::node::scanner::{Crowd, Found};
use crate::node::shares::ShareSettings;
use crate::node::slots::QueueSlots;
use crate::node::subscriptions::{Channel, SubscriptionChange};
use crate::node::tasks::NodeSupervisor;
use crate::partition::Partition;
use crate::protocol::limits;
use crate::protocol::pattern::Pattern;
use crate::router::Router;
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
    pub(crate) crowd: Arc<Crowd>,
    /// The numbers of the queues by name.
    pub(crate) numbers: HashMap<String, QueueNumber>,
    pub(crate) queues: HashMap<QueueNumber, NodeQueue>,
    /// Queues that the user removed: no scan adds them again.
    pub(crate) excluded: BTreeSet<String>,
    /// The number of the last queue or partition.
    pub(crate) last: u32,
    /// How many partitions the node leaves, which still have handlers.
    pub(crate) draining: usize,
    /// The partitions that the node has left while a pop covered their lists: it gives their tokens
    /// back.
    pub(crate) left: HashMap<QueueNumber, Arc<Partition>>,
}

impl Membership {
    pub(crate) fn is_draining(&self) -> bool {
        self.draining > 0
    }

    pub(crate) fn next_number(&mut self) -> QueueNumber {
        self.last += 1;
        QueueNumber(self.last)
    }
}

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
        if let Some(number) = self.membership.numbers.get(&name) {
            let queue = self.membership.queues.get(number);
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
        let group = QueueNumber(self.membership.last + 1);
        self.shares
            .add_group(group, entry.share)
            .map_err(|error| Error::invalid(format!("queue {name}: {error}")))?;
        self.membership.last += 1;
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
            ranks: None,
            is_reading_map: false,
        };
        self.membership.queues.insert(group, queue);
        events::worker_started(&name, &self.node, self.concurrency, lease_ms);
        #[cfg(any(test, feature = "harness"))]
        self.tasks.attends(&name);
        self.membership.numbers.insert(name, group);
        self.add_member(group, group, home, None, now);
        if pattern.is_none() {
            self.search_map(group);
        }
        Ok(())
    }

    /// The same partition on the connections of the node.
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
        group: QueueNumber,
        number: QueueNumber,
        partition: Arc<Partition>,
        rank: Option<usize>,
        now: Instant,
    ) {
        let Some(queue) = self.membership.queues.get_mut(&group) else {
            return;
        };
        queue.members.insert(partition.tag(), number);
        let is_named = queue.pattern.is_none();
        let is_fixed = is_named && self.attention.add_named(number);
        let entry = &queue.entry;
        let context = HandlerContext {
            retry: entry.retry,
            time_limit: entry.time_limit,
            lease: entry.lease,
            ..self.membership.context.clone()
        };
        let slots = QueueSlots::new(&self.slots);
        let attended = AttendedQueue::new(Setup {
            number,
            group,
            rank,
            partition: Arc::clone(&partition),
            handling: Arc::clone(&entry.handling),
            context: Arc::new(context),
            lease: entry.lease,
            lease_ms: queue.lease_ms,
            max_handlers: entry.share.max.min(self.concurrency),
            slots: Arc::clone(&slots),
            silence: Some(self.membership.silence)
                .filter(|silence| !is_fixed && !silence.is_zero()),
            now,
        });
        self.membership.registered.add(&partition);
        self.membership.health.added(attended.name(), number);
        self.queues.insert(number, attended);
        self.shares.add(number, group, slots);
        self.timers.add(number);
        self.timers.set_rank(number, rank);
        self.subscribe(number, &partition);
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
    }

    pub(crate) fn subscribe(&self, number: QueueNumber, partition: &Partition) {
        let channel = Channel {
            queue_name: partition.queue_name().to_owned(),
            name: partition.keys().notice.clone(),
            route: partition.route().clone(),
        };
        let change = SubscriptionChange::Add(number, channel);
        // The subscription runs as long as this task.
        let _ = self.membership.subscriptions.send(change);
    }
}

#[cfg(test)]
pub(crate) mod tests;

/// The settings of a worker, as [`Worker`](crate::Worker) documents them.
pub(crate) struct Settings {
    pub(crate) servers: Arc<Servers>,
    pub(crate) queues: Vec<QueueEntry>,
    pub(crate) patterns: Vec<PatternEntry>,
    pub(crate) concurrency: usize,
    /// `None`: by weights.
    pub(crate) strict: Option<Duration>,
    /// For how long the node may be silent about a queue in which nothing happens.
    pub(crate) parking: Duration,
    pub(crate) grace: Duration,
    pub(crate) health: Arc<SharedHealth>,
    /// Ends the grace period at once.
    pub(crate) abort: CancellationToken,
}

/// A queue to attend.
#[derive(Clone)]
pub(crate) struct QueueEntry {
    pub(crate) router: Arc<Router>,
    pub(crate) handling: Arc<dyn Handling>,
    pub(crate) share: ShareSettings,
    pub(crate) lease: Duration,
    pub(crate) retry: Retry,
    pub(crate) time_limit: Option<Duration>,
}

/// Makes the entry for a queue that a pattern matches.
pub(crate) type Attend = Arc<dyn Fn(&str) -> Result<QueueEntry, Error> + Send + Sync>;

/// Queues to attend as they are found.
#[derive(Clone)]
pub(crate) struct PatternEntry {
    pub(crate) pattern: Pattern,
    pub(crate) attend: Attend,
}

/// Where the node reports how a command ended.
pub(crate) type CommandReply = oneshot::Sender<Result<(), Error>>;

/// A change while the node runs.
pub(crate) enum NodeCommand {
    Add(Box<QueueEntry>, CommandReply),
    /// Replied when the handlers of the queue have ended and the node has left it.
    Remove(String, CommandReply),
    /// Attends a queue for pulls, if it does not yet.
    AddPulls(Box<QueueEntry>, oneshot::Sender<Result<Arc<Pulls>, Error>>),
    /// A pull of this queue waits.
    Pulled(Arc<str>),
}

//! Listens for notices in a cluster: with one connection to each master that holds a queue of the
//! node. If a queue's slot moves, the node listens at the new master.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::node::PartitionId;
use crate::node::hints::subscriptions::{Channel, Hint, SubscriptionChange, listen};
use crate::server::link::ServerLink;
use crate::server::servers::Cluster;

/// How long to wait before a queue without a usable master is assigned again.
const PLACE_PAUSE: Duration = Duration::from_secs(1);
/// How many links to masters are made at a time.
const MAX_LINKING: usize = 8;

/// The queues to listen to, and the listener of each.
struct Listeners<R> {
    wanted: HashMap<PartitionId, Wanted>,
    listeners: Vec<Listener>,
    tasks: JoinSet<()>,
    /// The tasks that make links to masters which the node has not used before.
    linking: JoinSet<()>,
    /// When to assign the queues again that have no listener.
    place_at: Option<Instant>,
    /// The hints of all listeners, each with the link of its listener.
    hints: UnboundedSender<(Arc<ServerLink>, Hint)>,
    report: R,
}

struct Wanted {
    channel: Channel,
    /// The master at which the node listens for this queue.
    at: Option<Arc<ServerLink>>,
}

/// A task that listens at one master.
struct Listener {
    link: Arc<ServerLink>,
    changes: UnboundedSender<SubscriptionChange>,
}

/// Listens until `changes` ends.
pub(crate) async fn run(
    cluster: Arc<Cluster>,
    mut changes: UnboundedReceiver<SubscriptionChange>,
    report: impl Fn(Hint),
) {
    let (hints, mut hinted) = unbounded_channel();
    let mut listeners = Listeners {
        wanted: HashMap::new(),
        listeners: Vec::new(),
        tasks: JoinSet::new(),
        linking: JoinSet::new(),
        place_at: None,
        hints,
        report,
    };
    let mut owners = cluster.changes();
    loop {
        let place_at = listeners.place_at;
        let place_again = async {
            match place_at {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            change = changes.recv() => match change {
                Some(change) => listeners.apply(change),
                None => return,
            },
            Some((link, hint)) = hinted.recv() => {
                if listeners.is_current(&link, hint) {
                    (listeners.report)(hint);
                }
            }
            Ok(()) = owners.changed() => listeners.place_all(),
            Some(_) = listeners.linking.join_next() => listeners.place_all(),
            () = place_again => listeners.place_all(),
            Some(Err(panic)) = listeners.tasks.join_next() => {
                // The panic of a listener ends the worker with an error that names its task.
                if let Ok(panic) = panic.try_into_panic() {
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }
}

impl<R: Fn(Hint)> Listeners<R> {
    fn apply(&mut self, change: SubscriptionChange) {
        match change {
            SubscriptionChange::Add(partition, channel) => {
                self.wanted.insert(partition, Wanted { channel, at: None });
                self.place(partition);
            }
            SubscriptionChange::Remove(partition) => {
                if let Some(Wanted { at: Some(link), .. }) = self.wanted.remove(&partition) {
                    self.leave(partition, &link);
                }
            }
        }
    }

    fn place_all(&mut self) {
        self.place_at = None;
        let partitions: Vec<_> = self.wanted.keys().copied().collect();
        for partition in partitions {
            self.place(partition);
        }
    }

    /// Listens for the queue at the master of its slot only. If the node has no link to that
    /// master, it makes one first, and then assigns all queues again.
    fn place(&mut self, partition: PartitionId) {
        let Some(wanted) = self.wanted.get(&partition) else {
            return;
        };
        let route = &wanted.channel.route;
        if wanted.at.as_ref().is_some_and(|at| route.leads_to(at)) {
            return;
        }
        let Some(link) = route.known_link() else {
            if self.linking.len() < MAX_LINKING {
                let route = route.clone();
                self.linking.spawn(async move {
                    if route.link().await.is_err() {
                        // No report here: the beats report why the master cannot be used.
                        tokio::time::sleep(PLACE_PAUSE).await;
                    }
                });
            }
            self.place_at.get_or_insert(Instant::now() + PLACE_PAUSE);
            return;
        };
        let channel = wanted.channel.clone();
        let listener = match self.listener(&link) {
            Some(listener) => listener.clone(),
            None => self.start(&link),
        };
        // The send succeeds as long as the listener's task runs.
        let _ = listener.send(SubscriptionChange::Add(partition, channel));
        let wanted = self.wanted.get_mut(&partition);
        if let Some(old) = wanted.and_then(|wanted| wanted.at.replace(link)) {
            self.leave(partition, &old);
            // Notices are missing until the new listener has subscribed.
            (self.report)(Hint::Lost(partition));
        }
    }

    fn listener(&self, link: &Arc<ServerLink>) -> Option<&UnboundedSender<SubscriptionChange>> {
        let mut listeners = self.listeners.iter();
        let listener = listeners.find(|listener| Arc::ptr_eq(&listener.link, link))?;
        Some(&listener.changes)
    }

    fn start(&mut self, link: &Arc<ServerLink>) -> UnboundedSender<SubscriptionChange> {
        let (changes, received) = unbounded_channel();
        let (hints, from) = (self.hints.clone(), Arc::clone(link));
        let report = move |hint| {
            // The send fails if the task of all listeners has stopped.
            let _ = hints.send((Arc::clone(&from), hint));
        };
        self.tasks.spawn(listen(Arc::clone(link), received, report));
        self.listeners.push(Listener {
            link: Arc::clone(link),
            changes: changes.clone(),
        });
        changes
    }

    /// Stops listening for a queue at one master. Ends the listener if it has no other queue.
    fn leave(&mut self, partition: PartitionId, link: &Arc<ServerLink>) {
        if let Some(listener) = self.listener(link) {
            let _ = listener.send(SubscriptionChange::Remove(partition));
        }
        let used = |listener: &Listener| {
            let mut at = self.wanted.values().filter_map(|wanted| wanted.at.as_ref());
            at.any(|at| Arc::ptr_eq(at, &listener.link))
        };
        self.listeners.retain(used);
    }

    /// Whether the hint comes from the listener that the queue is assigned to now.
    fn is_current(&self, link: &Arc<ServerLink>, hint: Hint) -> bool {
        let (Hint::Notice(partition, _) | Hint::Subscribed(partition) | Hint::Lost(partition)) =
            hint;
        let wanted = self.wanted.get(&partition);
        let at = wanted.and_then(|wanted| wanted.at.as_ref());
        at.is_some_and(|at| Arc::ptr_eq(at, link))
    }
}

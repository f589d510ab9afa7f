//! Waits on the wake-up lists of a node's queues instead of polling. One blocking pop covers all
//! lists; in a cluster, where a pop cannot span slots, each list has its own pop.

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::node::PartitionId;
use crate::partition::Partition;
use crate::server::blocking::BlockingPop;
use crate::server::patience::reconnect_delays;
use crate::server::route::Route;
use crate::telemetry::events;

/// For how long a list is left out because no pop from it can succeed.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);

/// The result of a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WakeUp {
    /// A token of this partition came.
    Token(PartitionId),
    /// A pop of these partitions' lists failed, and may have lost a token.
    Failed(Vec<PartitionId>),
}

/// A pop in flight. Its result has the connection, and the index of the list whose token came.
type Pending = Pin<Box<dyn Future<Output = (BlockingPop, Popped)> + Send>>;

enum Popped {
    Token(Option<usize>),
    /// The pop failed. For each list: the error if no pop from it can succeed.
    Failed(Error, Vec<Option<Error>>),
}

/// The wake-up list of one queue.
#[derive(Clone)]
pub(crate) struct WakeUpList {
    pub(crate) partition: PartitionId,
    /// The partition, for giving a token back even after the node has left it.
    pub(crate) remote: Arc<Partition>,
    pub(crate) queue_name: String,
    pub(crate) key: String,
    pub(crate) route: Route,
}

/// The wake-up lists that a node waits on, and their pops.
#[derive(Default)]
pub(crate) struct WakeUps {
    /// The pops, each with its key: in a cluster the partition; otherwise `None` for the one pop.
    pops: BTreeMap<Option<PartitionId>, SharedPop>,
}

impl WakeUps {
    /// Sets the lists that the next pops cover. A pop in flight still covers the old ones; it ends
    /// within about 2 s.
    pub(crate) fn listen(&mut self, lists: Vec<WakeUpList>) {
        let mut groups = BTreeMap::<_, Vec<_>>::new();
        for list in lists {
            let group = list.route.is_one_of_many().then_some(list.partition);
            groups.entry(group).or_default().push(list);
        }
        for (group, pop) in &mut self.pops {
            pop.listen(groups.remove(group).unwrap_or_default());
        }
        self.pops.retain(|_, pop| !pop.is_over());
        for (group, lists) in groups {
            let mut pop = SharedPop::default();
            pop.listen(lists);
            self.pops.insert(group, pop);
        }
    }

    /// Whether the pop in flight covers the list of this partition, or, if none is in flight,
    /// whether the next one will.
    pub(crate) fn covers(&self, partition: PartitionId) -> bool {
        self.pops.values().any(|pop| pop.covers(partition))
    }

    /// The lists of the last pops, which may still be in flight.
    pub(crate) fn last_covered(&self) -> impl Iterator<Item = &WakeUpList> {
        self.pops.values().flat_map(|pop| &pop.in_flight)
    }

    /// Whether a pop is in flight, which may take a token.
    #[cfg(test)]
    pub(crate) fn is_waiting(&self) -> bool {
        self.pops.values().any(|pop| pop.pending.is_some())
    }

    /// Waits for a token or for a failed pop. After a failed pop, the caller must claim from every
    /// queue that it covered, because the pop may have taken a token. With `may_start`, another pop
    /// with the lists of the last [`listen`](Self::listen) starts when one ends without a token.
    /// Pends while there are no lists.
    ///
    /// Cancel safe: a dropped wait leaves its pops in flight, and the next call awaits them.
    /// The caller that drops `WakeUps` returns a token to each of the
    /// [`last_covered`](Self::last_covered) lists: the server may have sent one.
    pub(crate) async fn wait(&mut self, may_start: bool) -> WakeUp {
        std::future::poll_fn(|context| {
            let mut pops = self.pops.values_mut();
            let woken = pops.find_map(|pop| match pop.poll_wait(may_start, context) {
                Poll::Ready(wake_up) => Some(wake_up),
                Poll::Pending => None,
            });
            // A pop without lists gives up its connection.
            self.pops.retain(|_, pop| !pop.is_over());
            woken.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// The pops over the lists of some queues, one after another.
#[derive(Default)]
struct SharedPop {
    /// The lists that the next pop covers.
    lists: Vec<WakeUpList>,
    /// The lists that the pop in flight covers.
    in_flight: Vec<WakeUpList>,
    pending: Option<Pending>,
    /// The connection, while no pop is in flight.
    idle: Option<BlockingPop>,
    /// The lists that are left out, each with the end of that time.
    refused: HashMap<PartitionId, Instant>,
    /// Set if the server allows a pop from each list but not from several, because different ACL
    /// rules grant them. Until this instant, a pop covers the first list only; notices report new
    /// work of the other queues.
    one_until: Option<Instant>,
    failures: u32,
}

impl SharedPop {
    /// Sets the lists that the next pop covers. The pop in flight, if any, ends within about 2 s.
    fn listen(&mut self, lists: Vec<WakeUpList>) {
        self.lists = lists;
    }

    /// Whether the pop in flight covers the list of this partition, or, if none is in flight,
    /// whether the next one will.
    fn covers(&self, partition: PartitionId) -> bool {
        let lists = if self.pending.is_some() {
            &self.in_flight
        } else {
            &self.lists
        };
        let covered = self.one_until.map_or(lists.len(), |_| 1);
        lists
            .iter()
            .filter(|list| !self.refused.contains_key(&list.partition))
            .take(covered)
            .any(|list| list.partition == partition)
    }

    /// Whether the pop has no lists left to cover.
    fn is_over(&self) -> bool {
        self.lists.is_empty() && self.pending.is_none()
    }

    fn poll_wait(&mut self, may_start: bool, context: &mut Context<'_>) -> Poll<WakeUp> {
        loop {
            if self.pending.is_none() && may_start {
                self.start();
            }
            let Some(pending) = &mut self.pending else {
                return Poll::Pending;
            };
            let (connection, popped) = ready!(pending.as_mut().poll(context));
            self.pending = None;
            self.idle = Some(connection);
            match popped {
                Popped::Token(None) => self.failures = 0,
                Popped::Token(Some(index)) => {
                    self.failures = 0;
                    if let Some(list) = self.in_flight.get(index) {
                        let partition = list.partition;
                        self.pass(partition);
                        return Poll::Ready(WakeUp::Token(partition));
                    }
                }
                Popped::Failed(error, refused) => {
                    self.failed(&error, &refused);
                    let covered = self.in_flight.iter().map(|list| list.partition);
                    return Poll::Ready(WakeUp::Failed(covered.collect()));
                }
            }
        }
    }

    /// Starts a pop over the lists, if there are any.
    fn start(&mut self) {
        let now = Instant::now();
        self.refused.retain(|_, until| now < *until);
        self.one_until = self.one_until.filter(|until| now < *until);
        let refused = &self.refused;
        let readable = self.lists.iter();
        let readable = readable.filter(|list| !refused.contains_key(&list.partition));
        let most = self.one_until.map_or(usize::MAX, |_| 1);
        self.in_flight = readable.take(most).cloned().collect();
        let Some(first) = self.in_flight.first() else {
            return;
        };
        let keys: Vec<_> = self.in_flight.iter().map(|list| list.key.clone()).collect();
        let idle = self.idle.take();
        let mut pop = idle.unwrap_or_else(|| BlockingPop::new(first.route.clone()));
        let pause =
            (self.failures > 0).then(|| reconnect_delays().delay(self.failures, fastrand::f64()));
        let is_one_of_many = self.lists.len() > 1;
        let is_apart = first.route.is_one_of_many();
        self.pending = Some(Box::pin(async move {
            if let Some(pause) = pause {
                tokio::time::sleep(pause).await;
            }
            let popped = match pop.token(&keys).await {
                Ok(index) => Popped::Token(index),
                Err(error) if error.code().is_some() && is_one_of_many => {
                    // One of the lists may be the reason, such as a key of another type.
                    let refusals = pop.refusals(&keys).await.unwrap_or_default();
                    Popped::Failed(error, refusals)
                }
                // In a cluster other pops continue, and this one is left out for a while.
                Err(error) if is_apart && matches!(error.code(), Some("NOPERM" | "WRONGTYPE")) => {
                    Popped::Failed(error.clone(), vec![Some(error)])
                }
                Err(error) => Popped::Failed(error, Vec::new()),
            };
            (pop, popped)
        }));
    }

    /// Moves the list that was just served to the end, because Redis serves the first list that has
    /// a token.
    fn pass(&mut self, partition: PartitionId) {
        if self.one_until.is_none()
            && let Some(index) = self
                .lists
                .iter()
                .position(|list| list.partition == partition)
        {
            self.lists.rotate_left(index + 1);
        }
    }

    fn failed(&mut self, error: &Error, refusals: &[Option<Error>]) {
        self.failures = self.failures.saturating_add(1);
        let until = Instant::now() + REFUSED_PAUSE;
        let mut is_known = false;
        for (list, refusal) in self.in_flight.iter().zip(refusals) {
            if let Some(refusal) = refusal {
                is_known = true;
                events::wake_up_failed(&list.queue_name, refusal);
                self.refused.insert(list.partition, until);
            }
        }
        if is_known {
            self.failures = 0;
            return;
        }
        if let [first, rest @ ..] = &self.in_flight[..] {
            events::wake_up_failed(&first.queue_name, error);
            let is_joint = matches!(error.code(), Some("NOPERM" | "CROSSSLOT"));
            if !rest.is_empty() && is_joint {
                self.one_until = Some(until);
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! Listens for notices: messages that the head of a queue has changed. A lost notice delays a
//! message by at most the fallback interval, or by the parking time of a parked queue.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedReceiver;

use crate::error::{Error, ErrorKind};
use crate::model::retry::Retry;
use crate::node::PartitionId;
use crate::node::state::timers::FALLBACK_INTERVAL;
use crate::server::link::ServerLink;
use crate::server::patience::reconnect_delays;
use crate::server::route::Route;
use crate::server::subscription::{Received, Subscription};
use crate::telemetry::events;

/// How long to wait before another attempt if the user has no right to subscribe.
const DENIED_PAUSE: Duration = Duration::from_secs(30);

/// A change of the channels to listen to.
pub(crate) enum SubscriptionChange {
    Add(PartitionId, Channel),
    Remove(PartitionId),
}

/// The notice channel of one queue.
#[derive(Clone)]
pub(crate) struct Channel {
    pub(crate) queue_name: String,
    pub(crate) name: String,
    pub(crate) route: Route,
}

/// What the subscription reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hint {
    /// A notice: the head is now due at this Unix millisecond, or the scheduled set is empty.
    Notice(PartitionId, Option<u64>),
    /// The channel of this partition is subscribed to. Notices that were sent earlier were missed.
    Subscribed(PartitionId),
    /// The subscription of this partition has ended: no notices arrive.
    Lost(PartitionId),
}

/// The channels to listen to, and where to report.
struct Channels<R> {
    link: Arc<ServerLink>,
    wanted: HashMap<PartitionId, Channel>,
    /// The subscribed channels, each with its partition.
    numbers: HashMap<Vec<u8>, PartitionId>,
    /// The partitions whose channels are not subscribed to, each with the time of the next try.
    pending: BTreeSet<(Instant, PartitionId)>,
    /// How many times in a row the server refused a channel for a reason that may pass.
    refusals: HashMap<PartitionId, u32>,
    report: R,
}

/// Listens on one server until `changes` ends. Reconnects with back-off.
pub(crate) async fn listen(
    link: Arc<ServerLink>,
    mut changes: UnboundedReceiver<SubscriptionChange>,
    report: impl Fn(Hint),
) {
    let mut channels = Channels {
        link,
        wanted: HashMap::new(),
        numbers: HashMap::new(),
        pending: BTreeSet::new(),
        refusals: HashMap::new(),
        report,
    };
    let mut failures = 0;
    loop {
        while channels.wanted.is_empty() {
            let Some(change) = changes.recv().await else {
                return;
            };
            channels.change(change);
        }
        let start = Instant::now();
        let Err(error) = channels.listen(&mut changes).await else {
            continue;
        };
        failures = if start.elapsed() > FALLBACK_INTERVAL {
            1
        } else {
            failures + 1
        };
        channels.lost(&error).await;
        let pause = tokio::time::sleep(reconnect_delays().delay(failures, fastrand::f64()));
        channels.while_wanted(&mut changes, pause).await;
    }
}

impl<R: Fn(Hint)> Channels<R> {
    /// Passes notices on until the connection is lost, or until there is no channel to listen to.
    /// After the end of `changes` there is none.
    async fn listen(
        &mut self,
        changes: &mut UnboundedReceiver<SubscriptionChange>,
    ) -> Result<(), Error> {
        let link = Arc::clone(&self.link);
        let opening = Subscription::open(link.connector());
        let Some(opened) = self.while_wanted(changes, opening).await else {
            return Ok(());
        };
        let mut subscription = opened?;
        let now = Instant::now();
        self.pending = self
            .wanted
            .keys()
            .map(|partition| (now, *partition))
            .collect();
        loop {
            while let Ok(change) = changes.try_recv() {
                self.apply(change, &mut subscription).await?;
            }
            self.subscribe(&subscription).await?;
            let next = self.pending.first().map(|(at, _)| *at);
            let try_again = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                change = changes.recv() => match change {
                    Some(change) => self.apply(change, &mut subscription).await?,
                    None => {
                        self.wanted.clear();
                        return Ok(());
                    }
                },
                received = subscription.receive() => self.received(&received?),
                () = try_again => {}
            }
        }
    }

    /// Awaits `work`; returns `None` if no channel is left to listen to. A server that has lost its
    /// slots may never accept a connection; then the changes remove its channels.
    async fn while_wanted<T>(
        &mut self,
        changes: &mut UnboundedReceiver<SubscriptionChange>,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut work = std::pin::pin!(work);
        while !self.wanted.is_empty() {
            tokio::select! {
                biased;
                change = changes.recv() => match change {
                    Some(change) => drop(self.change(change)),
                    None => self.wanted.clear(),
                },
                done = &mut work => return Some(done),
            }
        }
        None
    }

    fn change(&mut self, change: SubscriptionChange) -> Option<Channel> {
        match change {
            SubscriptionChange::Add(partition, channel) => {
                self.wanted.insert(partition, channel);
                self.pending.insert((Instant::now(), partition));
                None
            }
            SubscriptionChange::Remove(partition) => {
                self.pending.retain(|(_, pending)| *pending != partition);
                self.refusals.remove(&partition);
                self.wanted.remove(&partition)
            }
        }
    }

    async fn apply(
        &mut self,
        change: SubscriptionChange,
        subscription: &mut Subscription,
    ) -> Result<(), Error> {
        if let Some(removed) = self.change(change)
            && self.numbers.remove(removed.name.as_bytes()).is_some()
        {
            subscription.remove(&removed.name).await?;
        }
        Ok(())
    }

    /// Subscribes to the pending channels whose time has come.
    async fn subscribe(&mut self, subscription: &Subscription) -> Result<(), Error> {
        let now = Instant::now();
        let mut pending = Vec::new();
        let mut names = Vec::new();
        while let Some((at, partition)) = self.pending.pop_first() {
            if at > now {
                self.pending.insert((at, partition));
                break;
            }
            if let Some(channel) = self.wanted.get(&partition) {
                pending.push(partition);
                names.push(channel.name.clone());
            }
        }
        let refusals = subscription.add(&names).await?;
        let refusals: HashMap<_, _> = refusals.into_iter().collect();
        let now = Instant::now();
        for (index, (partition, name)) in pending.into_iter().zip(names).enumerate() {
            if let Some(error) = refusals.get(&index) {
                if let Some(channel) = self.wanted.get(&partition) {
                    channel.route.learn(&self.link, error).await;
                }
                self.refused(partition, error, now);
            } else {
                self.refusals.remove(&partition);
                self.numbers.insert(name.into_bytes(), partition);
                (self.report)(Hint::Subscribed(partition));
            }
        }
        Ok(())
    }

    /// Handles the server's refusal of this partition's channel.
    fn refused(&mut self, partition: PartitionId, error: &Error, now: Instant) {
        let Some(channel) = self.wanted.get(&partition) else {
            return;
        };
        let pause = if error.kind() == ErrorKind::Denied {
            events::subscription_denied(&channel.queue_name, error);
            DENIED_PAUSE
        } else {
            events::subscription_failed(&channel.queue_name, error);
            let refusals = self.refusals.entry(partition).or_default();
            *refusals = refusals.saturating_add(1);
            refusal_delays().delay(*refusals, fastrand::f64())
        };
        self.pending.insert((now + pause, partition));
    }

    fn received(&mut self, received: &Received) {
        match received {
            Received::Notice(channel, head_ms) => {
                if let Some(partition) = self.numbers.get(channel) {
                    (self.report)(Hint::Notice(*partition, *head_ms));
                }
            }
            Received::Created(_) => {} // this connection subscribed to none
            Received::Ended(channel) => {
                if let Some(partition) = self.numbers.remove(channel) {
                    (self.report)(Hint::Lost(partition));
                    let pause = refusal_delays().delay(1, fastrand::f64());
                    self.pending.insert((Instant::now() + pause, partition));
                }
            }
        }
    }

    /// Handles a lost or refused connection.
    async fn lost(&mut self, error: &Error) {
        if let Some(channel) = self.wanted.values().next() {
            events::subscription_failed(&channel.queue_name, error);
            // Another server of the cluster may serve the slots by now.
            channel.route.learn(&self.link, error).await;
        }
        for partition in std::mem::take(&mut self.numbers).into_values() {
            (self.report)(Hint::Lost(partition));
        }
    }
}

/// The pauses between tries of a refused channel, such as one whose slot is on another server of
/// the cluster.
fn refusal_delays() -> Retry {
    Retry::exponential(Duration::from_millis(100), DENIED_PAUSE).unwrap_or_default()
}

#[cfg(test)]
mod tests;

//! Listens for notices that the head of a queue has changed. A lost notice delays a message by at
//! most the fallback interval, or the time for which its queue is parked.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::error::Error;
use crate::node::event::Event;
use crate::node::queue_number::QueueNumber;
use crate::node::timers::FALLBACK_INTERVAL;
use crate::server::connector::Connector;
use crate::server::patience::reconnect_delays;
use crate::server::subscription::{Notice, Subscription};
use crate::telemetry::events;

/// How long to wait before another attempt if the user has no right to subscribe.
const DENIED_PAUSE: Duration = Duration::from_secs(30);

/// A change of the channels to listen to.
pub(crate) enum SubscriptionChange {
    Add(QueueNumber, Channel),
    Remove(QueueNumber),
}

/// The notice channel of one queue.
#[derive(Clone)]
pub(crate) struct Channel {
    pub(crate) queue_name: String,
    pub(crate) name: String,
}

/// What the subscription reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hint {
    /// The head is now due at this Unix millisecond, or the scheduled set is empty.
    Notice(QueueNumber, Option<u64>),
    /// Notices arrive from now on: those before were missed.
    Subscribed(QueueNumber),
    /// Notices arrive no more.
    Lost(QueueNumber),
}

/// The channels to listen to, and where to report.
struct Channels {
    wanted: HashMap<QueueNumber, Channel>,
    /// The subscriptions that exist, by channel.
    numbers: HashMap<Vec<u8>, QueueNumber>,
    /// The queues whose channels are not subscribed to yet, and when to try.
    pending: Vec<QueueNumber>,
    try_at: Option<Instant>,
    sender: UnboundedSender<Event>,
}

/// Listens until `changes` ends. Reconnects with back-off.
pub(crate) async fn run(
    connector: Arc<Connector>,
    mut changes: UnboundedReceiver<SubscriptionChange>,
    sender: UnboundedSender<Event>,
) {
    let mut channels = Channels {
        wanted: HashMap::new(),
        numbers: HashMap::new(),
        pending: Vec::new(),
        try_at: None,
        sender,
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
        let Err(error) = channels.listen(&connector, &mut changes).await else {
            return;
        };
        failures = if start.elapsed() > FALLBACK_INTERVAL {
            1
        } else {
            failures + 1
        };
        channels.lost(&error);
        tokio::time::sleep(reconnect_delays().delay(failures, fastrand::f64())).await;
    }
}

impl Channels {
    /// Passes notices on until the connection is lost, or until `changes` ends.
    async fn listen(
        &mut self,
        connector: &Connector,
        changes: &mut UnboundedReceiver<SubscriptionChange>,
    ) -> Result<(), Error> {
        let mut subscription = Subscription::open(connector).await?;
        self.pending = self.wanted.keys().copied().collect();
        self.try_at = Some(Instant::now());
        loop {
            while let Ok(change) = changes.try_recv() {
                self.apply(change, &mut subscription).await?;
            }
            if self.try_at.is_some_and(|at| at <= Instant::now()) {
                self.subscribe(&subscription).await?;
            }
            let try_again = async {
                match self.try_at {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                change = changes.recv() => match change {
                    Some(change) => self.apply(change, &mut subscription).await?,
                    None => return Ok(()),
                },
                notice = subscription.notice() => self.noticed(&notice?),
                () = try_again => {}
            }
        }
    }

    fn change(&mut self, change: SubscriptionChange) -> Option<Channel> {
        match change {
            SubscriptionChange::Add(queue, channel) => {
                self.wanted.insert(queue, channel);
                self.pending.push(queue);
                self.try_at = Some(Instant::now());
                None
            }
            SubscriptionChange::Remove(queue) => {
                self.pending.retain(|pending| *pending != queue);
                self.wanted.remove(&queue)
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

    /// Subscribes to the pending channels.
    async fn subscribe(&mut self, subscription: &Subscription) -> Result<(), Error> {
        self.try_at = None;
        let pending = std::mem::take(&mut self.pending);
        let channel = |queue| Some((queue, self.wanted.get(&queue)?.name.clone()));
        let (pending, names): (Vec<_>, Vec<_>) = pending.into_iter().filter_map(channel).unzip();
        let refusals = subscription.add(&names).await?;
        let refusals: HashMap<_, _> = refusals.into_iter().collect();
        for (index, (queue, name)) in pending.into_iter().zip(names).enumerate() {
            if let Some(error) = refusals.get(&index) {
                if let Some(channel) = self.wanted.get(&queue) {
                    events::subscription_denied(&channel.queue_name, error);
                }
                self.pending.push(queue);
                self.try_at = Some(Instant::now() + DENIED_PAUSE);
            } else {
                self.numbers.insert(name.into_bytes(), queue);
                self.report(Hint::Subscribed(queue));
            }
        }
        Ok(())
    }

    fn noticed(&self, notice: &Notice) {
        if let Some(queue) = self.numbers.get(&notice.channel) {
            self.report(Hint::Notice(*queue, notice.head_ms));
        }
    }

    /// The connection is lost.
    fn lost(&mut self, error: &Error) {
        if let Some(channel) = self.wanted.values().next() {
            events::subscription_failed(&channel.queue_name, error);
        }
        for queue in std::mem::take(&mut self.numbers).into_values() {
            self.report(Hint::Lost(queue));
        }
    }

    fn report(&self, hint: Hint) {
        // The coordinator may have stopped.
        let _ = self.sender.send(Event::Hint(hint));
    }
}

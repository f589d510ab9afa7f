//! The poller finds queues, reads their counts, and reads further details for lists. It does so
//! once for all viewers, so that a hundred viewers cost Redis as much as one. One minute after the
//! last request it asks less often: only to know later why a queue was late.
//!
//! It calls the library, and knows no callers: each route shows its caller only the queues that the
//! caller may use.

mod ahead;
mod details;
mod late;
mod lately;
mod pace;
mod parts;
mod plan;
#[cfg(test)]
mod plan_tests;
mod run;
mod snapshot;
mod state;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dueq::Client;
use dueq::inspect::NodeInfo;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) use ahead::{Due, DueSlot, MAX_SCHEDULES};
pub(crate) use details::Known;
#[cfg(test)]
pub(crate) use lately::Minute;
pub(crate) use lately::{Lately, Recent, ended};
pub(crate) use parts::View;
pub(crate) use snapshot::{Entry, Rates, Snapshot};

use crate::edge::auth::NamePattern;
use crate::wire::causes::LateMinute;
use crate::work::poll::parts::MAX_RATE;
use crate::work::poll::state::Shared;

/// The longest wait of a request for the first counts after a pause.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// A handle of the poller. The task ends with the last clone.
#[derive(Clone)]
pub(crate) struct Poller(Arc<Owner>);

struct Owner {
    shared: Arc<Shared>,
    client: Client,
    /// The task. It starts with the first look, and again after a panic or the end of its runtime.
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Poller {
    pub(crate) fn new(client: Client, patterns: &[NamePattern]) -> Self {
        Self(Arc::new(Owner {
            shared: Arc::new(Shared::new(patterns)),
            client,
            task: Mutex::default(),
        }))
    }

    /// A viewer looks at these queues: the poller then asks them each second for some time. Without
    /// names it only stays awake, and asks each queue every 2 s, or less often if there are many.
    pub(crate) fn look<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        self.0.shared.look(names);
        self.wake();
    }

    /// Looks at queues now and then from now on, although nobody does: to know later why one was late.
    pub(crate) fn watch(&self) {
        self.0.shared.state().plan.watch(Instant::now());
        self.wake();
    }

    /// The known details of these queues. Old details are read again in the background. If at most
    /// [`MAX_RATE`] details were never read, waits for them for at most `patience`.
    pub(crate) async fn details(
        &self,
        view: View,
        names: &[&str],
        patience: Duration,
    ) -> HashMap<Arc<str>, Known> {
        let shared = &self.0.shared;
        let mut answers = shared.answers.subscribe();
        shared.look_at(view, names);
        self.wake();
        if shared.unanswered(view, names) <= MAX_RATE {
            let is_whole = answers.wait_for(|_| shared.unanswered(view, names) == 0);
            let _ = tokio::time::timeout(patience, is_whole).await;
        }
        shared.fresh(names)
    }

    /// Keeps the workers of a queue as a call has changed them.
    pub(crate) fn saw_nodes(&self, name: &str, nodes: Vec<NodeInfo>) {
        self.0.shared.state().saw_nodes(name, nodes);
    }

    /// The minutes of the last hour in which this queue was late, and since when the poller has watched
    /// all queues; `None` if it does not. By Redis's clock.
    pub(crate) fn late(&self, name: &str) -> (Vec<LateMinute>, Option<u64>) {
        self.0.shared.state().late(name, Instant::now())
    }

    /// The current snapshot.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.0.shared.snapshot.borrow())
    }

    /// Receives each later snapshot.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.0.shared.snapshot.subscribe()
    }

    /// Looks at all queues, and returns the snapshot. If the poller wakes from a pause, waits up to
    /// 2 s until every queue was asked.
    pub(crate) async fn looked(&self) -> Arc<Snapshot> {
        self.looked_within(PATIENCE).await
    }

    /// Like [`Self::looked`], but waits at most `patience` instead of 2 s.
    pub(crate) async fn looked_within(&self, patience: Duration) -> Arc<Snapshot> {
        let mut snapshots = self.subscribe();
        self.look([]);
        let caught_up = snapshots.wait_for(|snapshot| !snapshot.is_catching_up);
        let _ = tokio::time::timeout(patience, caught_up).await;
        self.snapshot()
    }

    /// Wakes the task, or starts it.
    fn wake(&self) {
        self.0.shared.woken.notify_one();
        let mut task = self.0.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            let run = run::run(Arc::clone(&self.0.shared), self.0.client.clone());
            *task = Some(tokio::spawn(run));
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task.take() {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Far longer than any awaited event takes.
    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn poller_reads_viewed_queues_and_its_task_ends_with_it() {
        let redis = dueq_testkit::Server::start(&[]).expect("a Redis");
        let client = Client::connect(&redis.url()).await.expect("a client");
        let queue = client.queue("orders").expect("a queue");
        let delay = Duration::from_secs(400);
        queue.push("x").delay(delay).await.expect("a push");
        let poller = Poller::new(client, &[]);
        let known = poller
            .details(View::Queues, &["orders", "absent"], LIMIT)
            .await;
        let orders = known.get("orders").expect("the queue is known");
        let (due, _) = orders.due.as_ref().expect("its dues");
        let hour = due.hour();
        assert_eq!((hour.len(), hour.iter().sum::<u64>()), (13, 1));
        assert_eq!(hour[0], 0, "it is due after more than 5 minutes");
        assert!(orders.lately.is_some() && orders.day.is_some());
        assert!(orders.nodes.is_none(), "nobody looked at workers");
        let shared = Arc::downgrade(&poller.0.shared);
        drop(poller);
        let ended = async {
            while shared.strong_count() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LIMIT, ended).await.expect("it ends");
    }

    #[tokio::test]
    async fn details_call_does_not_wait_for_too_many_reads() {
        let redis = dueq_testkit::Server::start(&[]).expect("a Redis");
        let client = Client::connect(&redis.url()).await.expect("a client");
        let poller = Poller::new(client, &[]);
        let names: Vec<_> = (0..=MAX_RATE).map(|number| format!("q{number}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        poller.details(View::Workers, &names, LIMIT).await;
        let unanswered = poller.0.shared.unanswered(View::Workers, &names);
        assert_eq!(unanswered, names.len(), "it did not wait");
        poller.details(View::Workers, &names[..5], LIMIT).await;
        let unanswered = poller.0.shared.unanswered(View::Workers, &names[..5]);
        assert_eq!(unanswered, 0, "it waited");
    }
}

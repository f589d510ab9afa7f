//! The poller: it finds queues and asks for their counts, once for all viewers, so that a hundred
//! viewers cost Redis as much as one. It pauses while nobody looks.

mod plan;
#[cfg(test)]
mod plan_tests;
mod run;
mod snapshot;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dueq::Client;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

pub(crate) use snapshot::{Entry, Snapshot};

use crate::edge::auth::NamePattern;
use crate::work::poll::run::{MAX_LOOKS, Shared};

/// How long a request waits for the first counts after a pause.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// After so long without a look the poller may have paused.
const DROWSY: Duration = Duration::from_secs(55);
/// The poller. Its task ends with its last clone.
#[derive(Clone)]
pub(crate) struct Poller(Arc<Owner>);

struct Owner {
    shared: Arc<Shared>,
    client: Client,
    /// The task: it begins with the first look, and again after a panic or the end of its runtime.
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Poller {
    pub(crate) fn new(client: Client, patterns: &[NamePattern]) -> Self {
        let first = Snapshot {
            is_catching_up: true,
            ..Snapshot::default()
        };
        Self(Arc::new(Owner {
            shared: Arc::new(Shared {
                patterns: patterns.to_vec(),
                looks: Mutex::default(),
                looked: Notify::new(),
                snapshot: watch::Sender::new(Arc::new(first)),
            }),
            client,
            task: Mutex::default(),
        }))
    }

    /// Somebody looks at these queues: they are asked each second for some time. Without names,
    /// somebody looks at all of them.
    pub(crate) fn look<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        {
            let mut looks = self.0.shared.looks();
            looks.is_any = true;
            for name in names {
                if looks.names.len() < MAX_LOOKS {
                    looks.names.push(name.to_owned());
                }
            }
            let last = looks.last.replace(Instant::now());
            if last.is_none_or(|last| last.elapsed() >= DROWSY) {
                self.0.shared.snapshot.send_modify(|snapshot| {
                    Arc::make_mut(snapshot).is_catching_up = true;
                });
            }
        }
        self.0.shared.looked.notify_one();
        self.ensure();
    }

    /// The snapshot as it is.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.0.shared.snapshot.borrow())
    }

    /// Each later snapshot.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.0.shared.snapshot.subscribe()
    }

    /// Looks at all queues, and returns the snapshot. If the poller wakes from a pause, it waits up to
    /// 2 s until every queue was asked.
    pub(crate) async fn looked(&self) -> Arc<Snapshot> {
        self.looked_within(PATIENCE).await
    }

    /// Like [`Self::looked`], with another patience than 2 s.
    pub(crate) async fn looked_within(&self, patience: Duration) -> Arc<Snapshot> {
        let mut snapshots = self.subscribe();
        self.look([]);
        let caught_up = snapshots.wait_for(|snapshot| !snapshot.is_catching_up);
        let _ = tokio::time::timeout(patience, caught_up).await;
        self.snapshot()
    }

    /// Starts the task, if it does not run.
    fn ensure(&self) {
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

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

use crate::auth::QueuePattern;

/// How long a request waits for the first counts after a pause.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// After so long without a look the poller may have paused.
const DROWSY: Duration = Duration::from_secs(55);
/// How many names of looked-at queues wait for the poller: it takes them within milliseconds.
const MAX_LOOKS: usize = 10_000;

/// The poller.
pub(crate) struct Poller {
    shared: Arc<Shared>,
    client: Client,
    /// The task: it begins with the first look, and again after a panic or the end of its runtime.
    task: Mutex<Option<JoinHandle<()>>>,
}

/// What the poller and its task share.
struct Shared {
    /// The patterns of the served queues; none for all.
    patterns: Vec<QueuePattern>,
    looks: Mutex<Looks>,
    looked: Notify,
    snapshot: watch::Sender<Arc<Snapshot>>,
}

/// Who has looked since the task took it.
#[derive(Default)]
struct Looks {
    is_any: bool,
    names: Vec<String>,
    last: Option<Instant>,
}

impl Poller {
    pub(crate) fn new(client: Client, patterns: &[QueuePattern]) -> Self {
        let first = Snapshot {
            is_catching_up: true,
            ..Snapshot::default()
        };
        Self {
            shared: Arc::new(Shared {
                patterns: patterns.to_vec(),
                looks: Mutex::default(),
                looked: Notify::new(),
                snapshot: watch::Sender::new(Arc::new(first)),
            }),
            client,
            task: Mutex::default(),
        }
    }

    /// Somebody looks at these queues: they are asked each second for some time. Without names,
    /// somebody looks at all of them.
    pub(crate) fn look<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        {
            let mut looks = self.shared.looks();
            looks.is_any = true;
            for name in names {
                if looks.names.len() < MAX_LOOKS {
                    looks.names.push(name.to_owned());
                }
            }
            let last = looks.last.replace(Instant::now());
            if last.is_none_or(|last| last.elapsed() >= DROWSY) {
                self.shared.snapshot.send_modify(|snapshot| {
                    Arc::make_mut(snapshot).is_catching_up = true;
                });
            }
        }
        self.shared.looked.notify_one();
        self.ensure();
    }

    /// The snapshot as it is.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.shared.snapshot.borrow())
    }

    /// Each later snapshot.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.shared.snapshot.subscribe()
    }

    /// Looks at all queues, and returns the snapshot. If the poller wakes from a pause, it waits up to
    /// 2 s until every queue was asked.
    pub(crate) async fn looked(&self) -> Arc<Snapshot> {
        self.looked_within(PATIENCE).await
    }

    /// The same with another patience.
    pub(crate) async fn looked_within(&self, patience: Duration) -> Arc<Snapshot> {
        let mut snapshots = self.subscribe();
        self.look([]);
        let caught_up = snapshots.wait_for(|snapshot| !snapshot.is_catching_up);
        let _ = tokio::time::timeout(patience, caught_up).await;
        self.snapshot()
    }

    /// Starts the task, if it does not run.
    fn ensure(&self) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            let run = run::run(Arc::clone(&self.shared), self.client.clone());
            *task = Some(tokio::spawn(run));
        }
    }
}

impl Shared {
    fn looks(&self) -> std::sync::MutexGuard<'_, Looks> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task.take() {
            task.abort();
        }
    }
}

//! Makes an internal task of a running node panic, for tests of supervision.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::node::runtime::task::Task;

/// A queue that the node attends, and the task that must panic.
type Injection = (String, Task);

static INJECTIONS: Mutex<Vec<Injection>> = Mutex::new(Vec::new());
static CHANGED: Notify = Notify::const_new();

/// Makes one task of a node that attends this queue panic: a running one now, or the next one that
/// starts. `false` if [`internal_tasks`] has no task of this name.
#[cfg(feature = "harness")]
pub fn panic_in(queue: &str, task: &str) -> bool {
    let task = Task::ALL.into_iter().find(|known| known.name() == task);
    if let Some(task) = task {
        inject(queue, task);
    }
    task.is_some()
}

/// The names of all internal tasks of a node, as its errors contain them.
#[cfg(feature = "harness")]
pub fn internal_tasks() -> impl Iterator<Item = &'static str> {
    Task::ALL.into_iter().map(Task::name)
}

static END_LIMITS: Mutex<Vec<(String, Duration)>> = Mutex::new(Vec::new());

/// Sets how long a node that starts with this queue waits, after the grace period, for handlers
/// that block their threads.
#[cfg(feature = "harness")]
pub fn limit_end(queue: &str, limit: Duration) {
    let mut limits = END_LIMITS.lock().unwrap_or_else(PoisonError::into_inner);
    limits.push((queue.to_owned(), limit));
}

/// The limit that a test has set for a node of one of these queues.
pub(crate) fn end_limit(queues: &[&str]) -> Option<Duration> {
    let limits = END_LIMITS.lock().unwrap_or_else(PoisonError::into_inner);
    let found = limits
        .iter()
        .find(|(queue, _)| queues.contains(&queue.as_str()));
    found.map(|(_, limit)| *limit)
}

pub(crate) fn inject(queue: &str, task: Task) {
    injections().push((queue.to_owned(), task));
    CHANGED.notify_waiters();
}

fn injections() -> MutexGuard<'static, Vec<Injection>> {
    INJECTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The queues that a node attends.
#[derive(Default)]
pub(crate) struct QueueNames(Mutex<Vec<String>>);

impl QueueNames {
    pub(crate) fn add(&self, queue: &str) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.push(queue.to_owned());
        drop(names);
        // Wakes tasks that already wait for an injection.
        CHANGED.notify_waiters();
    }

    /// Panics if a test has asked this task to panic.
    pub(crate) fn check(&self, task: Task) {
        let mut injections = injections();
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = injections
            .iter()
            .position(|(queue, meant)| *meant == task && names.contains(queue));
        drop(names);
        if let Some(index) = found {
            injections.remove(index);
            drop(injections);
            panic!("injected");
        }
    }

    /// Panics as soon as a test asks this task to panic.
    pub(crate) async fn panic_if_injected(&self, task: Task) {
        loop {
            let changed = CHANGED.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            self.check(task);
            changed.await;
        }
    }
}

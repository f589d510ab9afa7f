//! Collects the reports of handlers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::message::{due_of, unix_us};

/// Counts handled and acknowledged messages, and keeps the lateness of each. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Sink(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    started: Counter,
    acked: Counter,
    late_us: Mutex<Vec<i64>>,
    failure: Mutex<Option<String>>,
    failed: Notify,
}

/// A counter with one waiter, which is woken only at the awaited number: waking it for each message
/// would cost more than some of the measured queues do.
#[derive(Debug)]
struct Counter {
    count: AtomicU64,
    awaited: AtomicU64,
    reached: Notify,
}

impl Default for Counter {
    fn default() -> Self {
        Self {
            count: AtomicU64::new(0),
            awaited: AtomicU64::new(u64::MAX),
            reached: Notify::new(),
        }
    }
}

impl Counter {
    // If an add and a wait are concurrent, at least one sees the other, because all four operations
    // are in one total order.
    fn add(&self, more: u64) {
        let count = self.count.fetch_add(more, Ordering::SeqCst) + more;
        if count >= self.awaited.load(Ordering::SeqCst) {
            self.reached.notify_waiters();
        }
    }

    /// Waits until the counter has reached `n`. Allows only one waiter at a time.
    async fn reach(&self, n: u64) {
        self.awaited.store(n, Ordering::SeqCst);
        loop {
            let reached = self.reached.notified();
            if self.count() >= n {
                return self.awaited.store(u64::MAX, Ordering::SeqCst);
            }
            reached.await;
        }
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }
}

impl Sink {
    /// A handler has started with this payload.
    pub fn start(&self, payload: &[u8]) {
        if let Some(due_ms) = due_of(payload) {
            let late = i64::try_from(unix_us()).unwrap_or(i64::MAX)
                - i64::try_from(due_ms * 1_000).unwrap_or(0);
            self.0
                .late_us
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(late);
        }
        self.0.started.add(1);
    }

    /// Notes that this number of further messages is acknowledged, by an answer of the server.
    pub fn acknowledge(&self, count: u64) {
        self.0.acked.add(count);
    }

    /// Notes that the worker has ended early, so that waiting for it is useless.
    pub fn fail(&self, reason: String) {
        *self
            .0
            .failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(reason);
        self.0.failed.notify_waiters();
    }

    /// Completes when the worker has ended early: the reason.
    pub(crate) async fn failed(&self) -> String {
        loop {
            let failed = self.0.failed.notified();
            if let Some(reason) = &*self
                .0
                .failure
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
            {
                return reason.clone();
            }
            failed.await;
        }
    }

    /// Waits until this number of handlers has started.
    pub async fn started(&self, n: u64) {
        self.0.started.reach(n).await;
    }

    /// Waits until this number of messages is acknowledged.
    pub async fn acked(&self, n: u64) {
        self.0.acked.reach(n).await;
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.started.count()
    }

    pub(crate) fn take_late_us(&self) -> Vec<i64> {
        std::mem::take(
            &mut *self
                .0
                .late_us
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waiter_is_woken_when_its_number_is_reached() {
        let sink = Sink::default();
        sink.acknowledge(1);
        sink.acked(1).await;
        let waiting = tokio::spawn({
            let sink = sink.clone();
            async move { sink.acked(3).await }
        });
        while sink.0.acked.awaited.load(Ordering::SeqCst) != 3 {
            tokio::task::yield_now().await;
        }
        sink.acknowledge(1);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        sink.acknowledge(5);
        waiting.await.expect("no panic");
        assert_eq!(sink.0.acked.awaited.load(Ordering::SeqCst), u64::MAX);
    }
}

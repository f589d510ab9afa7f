//! Where handlers report.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::message::{due_of, unix_us};

/// Counts what was handled and acknowledged, and keeps how late each was. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Sink(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    started: AtomicU64,
    acked: AtomicU64,
    changed: Notify,
    late_us: Mutex<Vec<i64>>,
    failure: Mutex<Option<String>>,
}

impl Sink {
    /// A handler has begun with this payload.
    pub fn start(&self, payload: &[u8]) {
        if let Some(due_ms) = due_of(payload) {
            let late = i64::try_from(unix_us()).unwrap_or(i64::MAX) - i64::try_from(due_ms * 1_000).unwrap_or(0);
            self.0.late_us.lock().unwrap_or_else(PoisonError::into_inner).push(late);
        }
        self.0.started.fetch_add(1, Ordering::Relaxed);
        self.0.changed.notify_waiters();
    }

    /// So many more are acknowledged: the server has answered.
    pub fn acknowledge(&self, count: u64) {
        self.0.acked.fetch_add(count, Ordering::Relaxed);
        self.0.changed.notify_waiters();
    }

    /// The worker has ended by itself: what waits for it need not wait any longer.
    pub fn fail(&self, reason: String) {
        *self.0.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
        self.0.changed.notify_waiters();
    }

    /// Why the worker has ended, when it has.
    pub(crate) async fn failed(&self) -> String {
        loop {
            let changed = self.0.changed.notified();
            if let Some(reason) = &*self.0.failure.lock().unwrap_or_else(PoisonError::into_inner) {
                return reason.clone();
            }
            changed.await;
        }
    }

    /// Waits until so many handlers have begun.
    pub async fn started(&self, n: u64) {
        self.reached(&self.0.started, n).await;
    }

    /// Waits until so many are acknowledged.
    pub async fn acked(&self, n: u64) {
        self.reached(&self.0.acked, n).await;
    }

    async fn reached(&self, count: &AtomicU64, n: u64) {
        loop {
            let changed = self.0.changed.notified();
            if count.load(Ordering::Relaxed) >= n {
                return;
            }
            changed.await;
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.started.load(Ordering::Relaxed)
    }

    pub(crate) fn take_late_us(&self) -> Vec<i64> {
        std::mem::take(&mut *self.0.late_us.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

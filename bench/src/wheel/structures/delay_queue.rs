//! tokio-util's `DelayQueue`, on tokio's paused clock.

use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, EnterGuard, Runtime};
use tokio::time::Instant;
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::{Expired, Key};

use super::super::timers::{Timers, keep};

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let built = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    built.unwrap_or_else(|error| panic!("no runtime: {error}"))
});

/// A `DelayQueue` works inside a runtime only. Programs enter one once, and so does the measurement.
pub(crate) fn enter_runtime() -> EnterGuard<'static> {
    RUNTIME.enter()
}

pub(crate) struct TokioUtil<T> {
    queue: DelayQueue<T>,
    start: Instant,
    now: u64,
}

impl<T> TokioUtil<T> {
    fn at(&self, tick: u64) -> Instant {
        self.start + Duration::from_millis(tick)
    }
}

impl<T> Timers<T> for TokioUtil<T> {
    type Key = Key;

    const NAME: &'static str = "tokio_util";
    const LABEL: &'static str = "tokio-util DelayQueue";

    fn new() -> Self {
        Self {
            queue: DelayQueue::new(),
            start: Instant::now(),
            now: 0,
        }
    }

    fn insert(&mut self, when: u64, value: T) -> Key {
        let when = self.at(when);
        self.queue.insert_at(value, when)
    }

    fn remove(&mut self, key: Key, removed: &mut Vec<T>) -> bool {
        keep(
            self.queue.try_remove(&key).map(Expired::into_inner),
            removed,
        )
    }

    fn reset(&mut self, key: &mut Key, when: u64) -> bool {
        let when = self.at(when);
        self.queue.reset_at(key, when);
        true
    }

    fn advance(&mut self, now: u64, fired: &mut Vec<T>) {
        RUNTIME.block_on(tokio::time::advance(Duration::from_millis(now - self.now)));
        self.now = now;
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(expired)) = self.queue.poll_expired(&mut context) {
            fired.push(expired.into_inner());
        }
    }

    fn next(&mut self) -> Option<u64> {
        let key = self.queue.peek()?;
        Some(
            self.queue
                .deadline(&key)
                .duration_since(self.start)
                .as_millis() as u64,
        )
    }
}

//! `nexus-timer`.

use std::time::Instant;

use nexus_timer::{TimerHandle, Wheel};

use super::super::timers::{Timers, keep};
use super::Epoch;

/// Timers fired by a bounded call at most.
const LIMIT: usize = 1_000;

pub(crate) struct Nexus<T: 'static> {
    wheel: Wheel<T>,
    epoch: Epoch,
}

impl<T> Timers<T> for Nexus<T> {
    /// `None` only while a reset is under way.
    type Key = Option<TimerHandle<T>>;

    const NAME: &'static str = "nexus_timer";
    const LABEL: &'static str = "nexus-timer";
    const NOTE: &'static str =
        "by poll_and_rebalance; its range is 4.7 hours, so the sparse timers lie in its last level";
    const IS_BOUNDED: bool = true;

    fn new() -> Self {
        let start = Instant::now();
        Self {
            wheel: Wheel::unbounded(4_096, start),
            epoch: Epoch::new(start),
        }
    }

    fn insert(&mut self, when: u64, value: T) -> Self::Key {
        Some(self.wheel.schedule(self.epoch.at(when), value))
    }

    fn remove(&mut self, key: Self::Key, removed: &mut Vec<T>) -> bool {
        keep(key.and_then(|handle| self.wheel.cancel(handle)), removed)
    }

    fn reset(&mut self, key: &mut Self::Key, when: u64) -> bool {
        let when = self.epoch.at(when);
        *key = key.take().map(|handle| self.wheel.reschedule(handle, when));
        key.is_some()
    }

    fn advance(&mut self, now: u64, fired: &mut Vec<T>) {
        self.wheel.poll_and_rebalance(self.epoch.at(now), fired);
    }

    fn next(&mut self) -> Option<u64> {
        self.wheel
            .next_deadline()
            .map(|instant| self.epoch.tick(instant))
    }

    fn advance_bounded(&mut self, now: u64, fired: &mut Vec<T>) -> bool {
        self.wheel
            .poll_and_rebalance_with_limit(self.epoch.at(now), LIMIT, fired)
            == LIMIT
    }

    fn release(&mut self, key: Self::Key) {
        if let Some(handle) = key {
            self.wheel.free(handle);
        }
    }
}

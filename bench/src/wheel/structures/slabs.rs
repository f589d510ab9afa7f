//! `slab-wheel`, with its layout for milliseconds.

use std::time::Instant;

use slab_wheel::{Key, Millis, TimingWheel};

use super::super::timers::{Timers, keep};
use super::Epoch;

pub(crate) struct SlabWheel<T> {
    wheel: TimingWheel<T, Millis>,
    fired: Vec<(Key, T)>,
    epoch: Epoch,
}

impl<T> Timers<T> for SlabWheel<T> {
    type Key = Key;

    const NAME: &'static str = "slab_wheel";
    const LABEL: &'static str = "slab-wheel";
    const NOTE: &'static str = "has no reset: the timer is removed and inserted again";

    fn new() -> Self {
        let start = Instant::now();
        Self {
            wheel: TimingWheel::starting_at(start),
            fired: Vec::new(),
            epoch: Epoch::new(start),
        }
    }

    fn insert(&mut self, when: u64, value: T) -> Key {
        self.wheel.insert(self.epoch.at(when), value)
    }

    fn remove(&mut self, key: Key, removed: &mut Vec<T>) -> bool {
        keep(self.wheel.remove(key), removed)
    }

    fn reset(&mut self, key: &mut Key, when: u64) -> bool {
        let Some(value) = self.wheel.remove(*key) else {
            return false;
        };
        *key = self.insert(when, value);
        true
    }

    fn advance(&mut self, now: u64, fired: &mut Vec<T>) {
        self.wheel.advance_to(self.epoch.at(now));
        self.wheel.drain_expired_into(&mut self.fired);
        fired.extend(self.fired.drain(..).map(|(_, value)| value));
    }

    fn next(&mut self) -> Option<u64> {
        self.wheel
            .next_expiry()
            .map(|instant| self.epoch.tick(instant))
    }
}

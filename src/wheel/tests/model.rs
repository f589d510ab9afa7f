//! The model that the wheel is compared with, and random numbers.

use std::collections::{BTreeMap, BTreeSet};

use super::super::Key;

/// The model of a wheel: timers sorted by deadline, and a clock that does not go back.
#[derive(Default)]
pub(super) struct Model {
    pub(super) timers: BTreeMap<Key, u64>,
    by_deadline: BTreeSet<(u64, Key)>,
    pub(super) now: u64,
}

impl Model {
    pub(super) fn set(&mut self, key: Key, when: u64) {
        if let Some(before) = self.timers.insert(key, when) {
            self.by_deadline.remove(&(before, key));
        }
        self.by_deadline.insert((when, key));
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<u64> {
        let when = self.timers.remove(&key)?;
        self.by_deadline.remove(&(when, key));
        Some(when)
    }

    pub(super) fn earliest(&self) -> Option<u64> {
        self.by_deadline.first().map(|&(when, _)| when)
    }

    pub(super) fn is_due(&self) -> bool {
        self.earliest().is_some_and(|when| when <= self.now)
    }
    pub(super) fn clear(&mut self) {
        self.timers.clear();
        self.by_deadline.clear();
    }
}

/// The random number generator SplitMix64.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.any()) * u128::from(end)) >> 64) as u64
    }

    /// A random number of ticks of any magnitude up to `2^bits`, mostly near a boundary between
    /// levels.
    pub(super) fn ticks(&mut self, bits: u64) -> u64 {
        let magnitude = 1 << self.below(bits);
        match self.below(4) {
            0 => magnitude - 1,
            1 => magnitude,
            2 => magnitude + 1,
            _ => self.below(magnitude) + magnitude / 2,
        }
    }
}

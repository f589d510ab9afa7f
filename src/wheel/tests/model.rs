//! The sorted map that the wheel is checked against.

use std::collections::{BTreeMap, BTreeSet};

use super::super::Key;

/// What a wheel is meant to be: timers in the order of their deadlines, and a clock that does not
/// go back.
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

//! A `BTreeMap` by deadline and order of insertion.

use std::collections::BTreeMap;

use super::super::timers::{Timers, keep};

pub(crate) struct SortedMap<T> {
    timers: BTreeMap<(u64, u64), T>,
    next: u64,
}

impl<T> Timers<T> for SortedMap<T> {
    type Key = (u64, u64);

    const NAME: &'static str = "btree_map";
    const LABEL: &'static str = "BTreeMap";

    fn new() -> Self {
        Self {
            timers: BTreeMap::new(),
            next: 0,
        }
    }

    fn insert(&mut self, when: u64, value: T) -> (u64, u64) {
        let key = (when, self.next);
        self.next += 1;
        self.timers.insert(key, value);
        key
    }

    fn remove(&mut self, key: (u64, u64), removed: &mut Vec<T>) -> bool {
        keep(self.timers.remove(&key), removed)
    }

    fn reset(&mut self, key: &mut (u64, u64), when: u64) -> bool {
        let Some(value) = self.timers.remove(key) else {
            return false;
        };
        key.0 = when;
        self.timers.insert(*key, value);
        true
    }

    fn advance(&mut self, now: u64, fired: &mut Vec<T>) {
        while let Some(first) = self.timers.first_entry() {
            if first.key().0 > now {
                break;
            }
            fired.push(first.remove());
        }
    }

    fn next(&mut self) -> Option<u64> {
        self.timers.first_key_value().map(|(key, _)| key.0)
    }
}

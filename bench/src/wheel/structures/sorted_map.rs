//! A `BTreeMap` by deadline and order of insertion.

use std::collections::BTreeMap;

use super::super::timers::{Timers, fire};

pub(crate) struct SortedMap<T> {
    timers: BTreeMap<(u64, u64), T>,
    next: u64,
}

impl<T> Timers<T> for SortedMap<T> {
    type Key = (u64, u64);

    const NAME: &'static str = "btree_map";
    const LABEL: &'static str = "BTreeMap";

    fn new() -> Self {
        Self { timers: BTreeMap::new(), next: 0 }
    }

    fn insert(&mut self, when: u64, value: T) -> (u64, u64) {
        let key = (when, self.next);
        self.next += 1;
        self.timers.insert(key, value);
        key
    }

    fn remove(&mut self, key: (u64, u64)) -> bool {
        self.timers.remove(&key).is_some()
    }

    fn reset(&mut self, key: &mut (u64, u64), when: u64) -> bool {
        let Some(value) = self.timers.remove(key) else {
            return false;
        };
        key.0 = when;
        self.timers.insert(*key, value);
        true
    }

    fn advance(&mut self, now: u64) -> usize {
        let mut fired = 0;
        while let Some(first) = self.timers.first_entry() {
            if first.key().0 > now {
                break;
            }
            fire(first.remove());
            fired += 1;
        }
        fired
    }

    fn next(&mut self) -> Option<u64> {
        self.timers.first_key_value().map(|(key, _)| key.0)
    }
}

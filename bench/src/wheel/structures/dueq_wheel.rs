//! `dueq::wheel`.

use dueq::wheel::{Key, Wheel};

use super::super::timers::{Timers, keep};

/// Entries touched by a bounded call at most.
const WORK: usize = 1_000;

pub(crate) struct Dueq<T>(Wheel<T>);

impl<T> Timers<T> for Dueq<T> {
    type Key = Key;

    const NAME: &'static str = "dueq";
    const LABEL: &'static str = "dueq::wheel";
    const IS_BOUNDED: bool = true;

    fn new() -> Self {
        Self(Wheel::new())
    }

    fn insert(&mut self, when: u64, value: T) -> Key {
        match self.0.insert(when, value) {
            Ok(key) => key,
            Err(full) => panic!("{full}"),
        }
    }

    fn remove(&mut self, key: Key, removed: &mut Vec<T>) -> bool {
        keep(self.0.remove(key), removed)
    }

    fn reset(&mut self, key: &mut Key, when: u64) -> bool {
        self.0.reset(*key, when)
    }

    fn advance(&mut self, now: u64, fired: &mut Vec<T>) {
        fired.extend(self.0.advance(now).map(|expired| expired.value));
    }

    fn next(&mut self) -> Option<u64> {
        self.0.next_expiration()
    }

    fn advance_bounded(&mut self, now: u64, fired: &mut Vec<T>) -> bool {
        let mut due = self.0.advance_limited(now, WORK);
        fired.extend(due.by_ref().map(|expired| expired.value));
        due.work_left() == 0
    }
}

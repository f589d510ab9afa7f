//! `hierarchical_hash_wheel_timer`'s cancellable wheel.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use hierarchical_hash_wheel_timer::wheels::Skip;
use hierarchical_hash_wheel_timer::wheels::cancellable::{
    CancellableTimerEntry, QuadWheelWithOverflow,
};

use super::super::timers::Timers;

struct Entry<T> {
    id: u64,
    value: T,
}

impl<T> fmt::Debug for Entry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

impl<T> CancellableTimerEntry for Entry<T> {
    type Id = u64;

    fn id(&self) -> &u64 {
        &self.id
    }
}

pub(crate) struct HashWheel<T> {
    wheel: QuadWheelWithOverflow<Entry<T>>,
    now: u64,
    next_id: u64,
}

impl<T> Timers<T> for HashWheel<T> {
    type Key = u64;

    const NAME: &'static str = "hierarchical_hash_wheel_timer";
    const LABEL: &'static str = "hierarchical_hash_wheel_timer";
    const NOTE: &'static str =
        "has no reset, and cancelling does not give the value back to insert it again";
    const RESETS: bool = false;

    fn new() -> Self {
        Self {
            wheel: QuadWheelWithOverflow::new(),
            now: 0,
            next_id: 0,
        }
    }

    fn insert(&mut self, when: u64, value: T) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let delay = Duration::from_millis(when - self.now);
        if self
            .wheel
            .insert_ref_with_delay(Rc::new(Entry { id, value }), delay)
            .is_err()
        {
            panic!("{when} is not after {}", self.now);
        }
        id
    }

    fn remove(&mut self, key: u64, _removed: &mut Vec<T>) -> bool {
        self.wheel.cancel(&key).is_ok()
    }

    fn reset(&mut self, _key: &mut u64, _when: u64) -> bool {
        false
    }

    fn advance(&mut self, now: u64, fired: &mut Vec<T>) {
        while self.now < now {
            let skipped = match self.wheel.can_skip() {
                Skip::None => 0,
                Skip::Millis(ticks) => u64::from(ticks).min(now - self.now),
                Skip::Empty => (now - self.now).min(u64::from(u32::MAX)),
            };
            if skipped > 0 {
                self.wheel.skip(skipped as u32);
                self.now += skipped;
            } else {
                self.now += 1;
                for entry in self.wheel.tick() {
                    fired.extend(Rc::into_inner(entry).map(|entry| entry.value));
                }
            }
        }
    }

    fn next(&mut self) -> Option<u64> {
        match self.wheel.can_skip() {
            Skip::None => Some(self.now + 1),
            Skip::Millis(ticks) => Some(self.now + u64::from(ticks) + 1),
            Skip::Empty => None,
        }
    }
}

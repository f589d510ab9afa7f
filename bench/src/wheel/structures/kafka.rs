//! Wheels of 20 slots that overflow into ever coarser ones, and a heap of the buckets in use, as in Kafka's purgatory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::super::lists::Lists;
use super::super::timers::{Timers, keep};

/// As in Kafka, whose tick is a millisecond too.
const SLOTS: u64 = 20;

struct Wheel {
    tick: u64,
    /// A multiple of `tick`.
    now: u64,
}

pub(crate) struct Kafka<T> {
    wheels: Vec<Wheel>,
    lists: Lists<T>,
    /// When each bucket is due; it is in the heap once for each time that this is set.
    due: Vec<u64>,
    buckets: BinaryHeap<Reverse<(u64, usize)>>,
}

impl<T> Kafka<T> {
    fn add_wheel(&mut self) {
        let tick = self.wheels.last().map_or(1, |wheel| wheel.tick * SLOTS);
        let now = self.wheels.first().map_or(0, |wheel| wheel.now);
        self.wheels.push(Wheel {
            tick,
            now: now - now % tick,
        });
        self.lists.add_lists(SLOTS as usize);
        self.due.resize(self.due.len() + SLOTS as usize, u64::MAX);
    }

    /// Files a timer, or says that it is due.
    fn file(&mut self, index: u32) -> bool {
        let when = self.lists.timer(index).when;
        for level in 0.. {
            if level == self.wheels.len() {
                self.add_wheel();
            }
            let Wheel { tick, now } = self.wheels[level];
            if when < now + tick {
                return false;
            }
            if when < now + tick * SLOTS {
                let slot = when / tick;
                let bucket = level * SLOTS as usize + (slot % SLOTS) as usize;
                self.lists.push(bucket, index);
                if self.due[bucket] != slot * tick {
                    self.due[bucket] = slot * tick;
                    self.buckets.push(Reverse((slot * tick, bucket)));
                }
                return true;
            }
        }
        false
    }
}

impl<T> Timers<T> for Kafka<T> {
    type Key = u32;

    const NAME: &'static str = "kafka";
    const LABEL: &'static str = "overflow wheels, as Kafka";
    const NOTE: &'static str = "has no reset: the timer is unlinked and filed again";

    fn new() -> Self {
        Self {
            wheels: Vec::new(),
            lists: Lists::new(0),
            due: Vec::new(),
            buckets: BinaryHeap::new(),
        }
    }

    fn insert(&mut self, when: u64, value: T) -> u32 {
        let index = self.lists.store(when, value);
        assert!(self.file(index), "{when} is over");
        index
    }

    fn remove(&mut self, key: u32, removed: &mut Vec<T>) -> bool {
        self.lists.unlink(key);
        keep(self.lists.take(key), removed)
    }

    fn reset(&mut self, key: &mut u32, when: u64) -> bool {
        self.lists.unlink(*key);
        self.lists.timer(*key).when = when;
        self.file(*key)
    }

    fn advance(&mut self, now: u64, fired: &mut Vec<T>) {
        while let Some(&Reverse((due, bucket))) = self.buckets.peek()
            && due <= now
        {
            self.buckets.pop();
            for wheel in &mut self.wheels {
                wheel.now = wheel.now.max(due - due % wheel.tick);
            }
            self.due[bucket] = u64::MAX;
            let mut cursor = self.lists.detach(bucket);
            while let Some(index) = cursor {
                cursor = self.lists.following(index);
                if !self.file(index) {
                    fired.extend(self.lists.take(index));
                }
            }
        }
        for wheel in &mut self.wheels {
            wheel.now = wheel.now.max(now - now % wheel.tick);
        }
    }

    fn next(&mut self) -> Option<u64> {
        self.buckets.peek().map(|&Reverse((due, _))| due)
    }
}

//! A `BinaryHeap` whose cancelled entries stay until they reach the top, or until most entries are
//! stale.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::super::timers::{Timers, keep};

/// Stale entries that are not worth a sweep.
const SLACK: usize = 64;

struct Timer<T> {
    value: Option<T>,
    generation: u32,
}

pub(crate) struct LazyHeap<T> {
    /// Deadline, index and generation. An entry with another generation than its timer is stale.
    heap: BinaryHeap<Reverse<(u64, u32, u32)>>,
    timers: Vec<Timer<T>>,
    free: Vec<u32>,
    live: usize,
}

impl<T> LazyHeap<T> {
    fn sweep(&mut self) {
        if self.heap.len() > 2 * self.live + SLACK {
            let timers = &self.timers;
            self.heap.retain(|&Reverse((_, index, generation))| {
                timers[index as usize].generation == generation
            });
        }
    }

    fn is_stale(&self, (_, index, generation): (u64, u32, u32)) -> bool {
        self.timers[index as usize].generation != generation
    }

    fn take(&mut self, index: u32) -> Option<T> {
        let timer = &mut self.timers[index as usize];
        timer.generation += 1;
        self.free.push(index);
        self.live -= 1;
        timer.value.take()
    }
}

impl<T> Timers<T> for LazyHeap<T> {
    type Key = (u32, u32);

    const NAME: &'static str = "binary_heap";
    const LABEL: &'static str = "BinaryHeap, lazy cancel";

    fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
            timers: Vec::new(),
            free: Vec::new(),
            live: 0,
        }
    }

    fn insert(&mut self, when: u64, value: T) -> (u32, u32) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.timers.push(Timer {
                value: None,
                generation: 0,
            });
            (self.timers.len() - 1) as u32
        });
        let timer = &mut self.timers[index as usize];
        timer.value = Some(value);
        self.live += 1;
        self.heap.push(Reverse((when, index, timer.generation)));
        (index, timer.generation)
    }

    fn remove(&mut self, (index, generation): (u32, u32), removed: &mut Vec<T>) -> bool {
        if self.is_stale((0, index, generation)) {
            return false;
        }
        let value = self.take(index);
        self.sweep();
        keep(value, removed)
    }

    fn reset(&mut self, (index, generation): &mut (u32, u32), when: u64) -> bool {
        if self.is_stale((0, *index, *generation)) {
            return false;
        }
        *generation += 1;
        self.timers[*index as usize].generation = *generation;
        self.heap.push(Reverse((when, *index, *generation)));
        self.sweep();
        true
    }

    fn advance(&mut self, now: u64, fired: &mut Vec<T>) {
        while let Some(&Reverse(entry)) = self.heap.peek() {
            if entry.0 > now {
                break;
            }
            self.heap.pop();
            if !self.is_stale(entry) {
                fired.extend(self.take(entry.1));
            }
        }
    }

    fn next(&mut self) -> Option<u64> {
        while let Some(&Reverse(entry)) = self.heap.peek() {
            if !self.is_stale(entry) {
                return Some(entry.0);
            }
            self.heap.pop();
        }
        None
    }
}

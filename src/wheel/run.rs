//! A small slot that is due to its last tick, sorted and ready to be fired from front to back.
//!
//! It spares its timers the way down through the levels.

use super::place::Place;
use super::slab::Slab;

/// Bits for the order of arrival in a key.
const ARRIVAL_BITS: u32 = 11;
/// Timers in a run at most: few enough that they stay in the cache between the sorting and the firing.
pub(super) const RUN_MAX: usize = 1 << ARRIVAL_BITS;
/// Bits of a deadline, from the start of its slot, that a key has room for.
pub(super) const RUN_SPAN_BITS: u32 = u64::BITS - ARRIVAL_BITS;

/// The timers of one slot, in the order of their deadlines, and of arrival where those are equal.
pub(super) struct Run {
    /// The deadline from `start` on, above the order of arrival: sorted as plain numbers.
    keys: Vec<u64>,
    /// In the order of arrival, so that a timer's place does not change when the keys are sorted.
    timers: Vec<u32>,
    start: u64,
    fired: usize,
    live: usize,
}

impl Run {
    pub(super) fn new() -> Self {
        Self {
            keys: Vec::new(),
            timers: Vec::new(),
            start: 0,
            fired: 0,
            live: 0,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Starts a run of deadlines from `start` on, when the run is empty.
    pub(super) fn begin(&mut self, start: u64) {
        debug_assert!(self.is_empty());
        self.clear();
        self.start = start;
    }

    #[inline]
    pub(super) fn push<T>(&mut self, slab: &mut Slab<T>, index: u32, when: u64) {
        let arrival = self.timers.len();
        self.keys
            .push((when - self.start) << ARRIVAL_BITS | arrival as u64);
        self.timers.push(index);
        self.live += 1;
        slab.set_place(index, Place::in_run(arrival));
    }

    pub(super) fn sort(&mut self) {
        self.keys.sort_unstable();
    }

    /// A deadline at or before all in the run.
    #[inline]
    pub(super) fn first(&self) -> Option<u64> {
        // A run that has lost its last timer is cleared, so what is there leads to a live one.
        self.keys
            .get(self.fired)
            .map(|key| self.start + (key >> ARRIVAL_BITS))
    }

    /// Takes the entry at the front, and the timer if it is valid.
    #[inline]
    pub(super) fn pop<T>(&mut self, slab: &Slab<T>) -> Option<u32> {
        let arrival = arrival(*self.keys.get(self.fired)?);
        self.fired += 1;
        let index = self.timers[arrival];
        slab.when_at(index, Place::in_run(arrival))?;
        self.leave();
        Some(index)
    }

    /// Counts off one timer whose entry is no longer valid.
    #[inline]
    pub(super) fn leave(&mut self) {
        self.live -= 1;
        if self.live == 0 {
            self.clear();
        }
    }

    /// The exact deadline of the first live timer.
    pub(super) fn exact<T>(&self, slab: &Slab<T>) -> Option<u64> {
        self.keys.get(self.fired..)?.iter().find_map(|&key| {
            let arrival = arrival(key);
            slab.when_at(self.timers[arrival], Place::in_run(arrival))
        })
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.timers.clear();
        self.fired = 0;
    }
}

#[inline]
fn arrival(key: u64) -> usize {
    key as usize % RUN_MAX
}

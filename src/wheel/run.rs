//! The run: a small slot whose whole span is due, sorted, so that it fires from front to back.
//!
//! Its timers need not be moved down through the levels.

use super::level::{ARRIVAL_BITS, RUN_MAX};
use super::location::Location;
use super::slab::Slab;

/// How many bits of a key hold the deadline, relative to the start of the slot.
pub(super) const RUN_SPAN_BITS: u32 = u64::BITS - ARRIVAL_BITS;

/// The timers of one slot, ordered by deadline and then by arrival.
pub(super) struct Run {
    /// The sort keys: each has the deadline relative to `start` in its high bits, and the order of
    /// arrival in its low bits.
    keys: Vec<u64>,
    /// The timers in the order of their arrival, so that sorting the keys does not change the
    /// timers' locations.
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

    /// Starts a run of deadlines at or after `start`. The run must be empty.
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
        slab.set_location(index, Location::in_run(arrival));
    }

    pub(super) fn sort(&mut self) {
        self.keys.sort_unstable();
    }

    /// A lower bound of the deadlines in the run.
    #[inline]
    pub(super) fn first(&self) -> Option<u64> {
        // A run without live timers is cleared, so a live timer follows.
        self.keys
            .get(self.fired)
            .map(|key| self.start + (key >> ARRIVAL_BITS))
    }

    /// Removes the first entry, and returns its timer if the entry is valid.
    #[inline]
    pub(super) fn pop<T>(&mut self, slab: &Slab<T>) -> Option<u32> {
        let arrival = arrival(*self.keys.get(self.fired)?);
        self.fired += 1;
        let index = self.timers[arrival];
        slab.when_at(index, Location::in_run(arrival))?;
        self.leave();
        Some(index)
    }

    /// Counts one entry as stale.
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
            slab.when_at(self.timers[arrival], Location::in_run(arrival))
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

//! Timers whose deadline was before the position of the wheel when they were set.
//!
//! A program rarely sets many such timers, so a heap, ordered by deadline, is enough.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::mem;

use super::slab::Key;
use super::slab::Slab;

/// Up to this many stale entries are kept without a sweep.
const SLACK: usize = 64;

/// The overdue timers, earliest deadline first.
pub(super) struct Overdue {
    /// The deadlines and keys of the timers. An entry is valid if its timer still has this
    /// deadline.
    heap: BinaryHeap<Reverse<(u64, Key)>>,
    live: usize,
}

impl Overdue {
    pub(super) fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
            live: 0,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Adds a timer. The heap is swept first if most of it is stale.
    #[cold]
    pub(super) fn push<T>(&mut self, slab: &mut Slab<T>, index: u32) {
        if self.heap.len() > 2 * self.live + SLACK {
            self.sweep(slab);
        }
        let Some((key, when)) = slab.make_overdue(index) else {
            return;
        };
        self.heap.push(Reverse((when, key)));
        self.live += 1;
    }

    /// A lower bound of the deadlines of overdue timers.
    #[inline]
    pub(super) fn first(&self) -> Option<u64> {
        self.heap.peek().map(|&Reverse((when, _))| when)
    }

    /// Removes the first entry, and returns its timer if the entry is valid.
    pub(super) fn pop<T>(&mut self, slab: &Slab<T>) -> Option<u32> {
        let Reverse(entry) = self.heap.pop()?;
        is_valid(slab, entry).then(|| {
            self.leave();
            let (_, key) = entry;
            key.index
        })
    }

    /// Counts one entry as stale.
    pub(super) fn leave(&mut self) {
        self.live -= 1;
        if self.live == 0 {
            self.heap.clear();
        }
    }

    /// The exact deadline of the first live timer.
    pub(super) fn exact<T>(&self, slab: &Slab<T>) -> Option<u64> {
        self.heap
            .iter()
            .filter(|&&Reverse(entry)| is_valid(slab, entry))
            .map(|&Reverse((when, _))| when)
            .min()
    }

    fn sweep<T>(&mut self, slab: &Slab<T>) {
        let mut entries = mem::take(&mut self.heap).into_vec();
        entries.retain(|&Reverse(entry)| is_valid(slab, entry));
        // Sorted to find doubles: a timer that was moved away and back has two valid entries.
        entries.sort_unstable();
        entries.dedup();
        self.heap = entries.into();
    }

    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.heap.len()
    }
}

/// Whether the timer still has the deadline of this entry. The position never goes back, so such a
/// timer is still overdue.
fn is_valid<T>(slab: &Slab<T>, (when, key): (u64, Key)) -> bool {
    slab.get(key).is_some_and(|timer| timer.when == when)
}

//! Moving timers between the slots, the run and the overdue.

use super::Wheel;
use super::chunk::{CHUNK, NONE};
use super::level::Slot;
use super::place::{Home, Place};
use super::run::{RUN_MAX, RUN_SPAN_BITS};

/// Entries moved at a time. Their timers lie anywhere in memory, and are looked at together so that the cache misses overlap.
const BLOCK: usize = CHUNK;

impl<T> Wheel<T> {
    /// Files the timer at `index` for `when`, which is its deadline, as seen from the wheel's position.
    #[inline]
    pub(super) fn file(&mut self, index: u32, when: u64) {
        if when < self.position {
            self.overdue.push(&mut self.slab, index);
        } else {
            self.slots
                .push(&mut self.slab, Slot::of(when, self.position), index);
        }
    }

    /// Gives up the entry at `place`, whose timer has gone or is filed elsewhere by now.
    #[inline]
    pub(super) fn unfile(&mut self, place: Place) {
        if let Some(slot) = self.leave(place) {
            self.slots.evacuate(&mut self.slab, slot);
        }
    }

    /// Counts off the entry at `place`, and says in which slot a stale entry stays behind.
    ///
    /// Inlined in any case: as a call of its own it kept the processor from looking ahead to the next timer, and cancelling a
    /// million boxes in random order took 76 ns each instead of 31.
    #[inline(always)]
    pub(super) fn leave(&mut self, place: Place) -> Option<Slot> {
        let slot = self.slot_of(place);
        match place.home() {
            Home::Chunk(_) | Home::Alone(_) => {}
            Home::Run => self.run.leave(),
            Home::Overdue => self.overdue.leave(),
        }
        self.slots.leave(slot?, 1);
        slot
    }

    /// The slot that `place` is in, if it is in any.
    #[inline]
    pub(super) fn slot_of(&self, place: Place) -> Option<Slot> {
        match place.home() {
            Home::Chunk(chunk) => Some(self.slots.owner(chunk)),
            Home::Alone(slot) => Some(slot),
            Home::Run | Home::Overdue => None,
        }
    }

    /// Takes up to a block of the oldest entries of `slot`, drops the stale ones, and hands each timer with its deadline to `place`,
    /// which must give it a new place. Returns how many entries that touched.
    #[inline]
    fn move_block(
        &mut self,
        slot: Slot,
        most: usize,
        mut place: impl FnMut(&mut Self, u32, u64),
    ) -> usize {
        let mut timers = [NONE; BLOCK];
        let mut deadlines = [0; BLOCK];
        let (taken, first) = self.slots.take(slot, &mut timers[..most.min(BLOCK)]);
        let mut valid = 0;
        for offset in 0..taken {
            let index = timers[offset];
            if let Some(when) = self.slab.when_at(index, first.plus(offset)) {
                timers[valid] = index;
                deadlines[valid] = when;
                valid += 1;
            }
        }
        for (&index, &when) in timers[..valid].iter().zip(&deadlines) {
            place(self, index, when);
        }
        self.slots.leave(slot, valid);
        taken
    }

    /// Moves the wheel to the start of `slot` and spreads its timers over the levels below,
    /// or wherever those belong that were reset to later. Stops, to go on at the next call, when `work` runs out.
    pub(super) fn cascade(&mut self, slot: Slot, work: &mut usize) {
        self.position = slot.start(self.position);
        self.slots.open(slot);
        while *work > 0 && self.slots.len(slot) > 0 {
            *work -= self.move_block(slot, *work, |wheel, index, when| wheel.file(index, when));
        }
    }

    /// Whether to sort `slot` instead of spreading it: all its time has come, there is no other run, and it is small.
    #[inline]
    pub(super) fn can_run(&self, slot: Slot, start: u64, work: usize) -> bool {
        let len = self.slots.len(slot);
        self.run.is_empty()
            && self.now - start >= slot.span()
            && slot.shift() <= RUN_SPAN_BITS
            // All in a slot of the lowest level are due at the same tick, so that any part of it will do.
            && (slot.level() == 0 || len <= work.min(RUN_MAX))
    }

    /// Moves the wheel to `start` and makes `slot`, or as much of it as a run may hold, the run.
    pub(super) fn gather(&mut self, slot: Slot, start: u64, work: &mut usize) {
        self.position = start;
        self.run.begin(start);
        let mut room = RUN_MAX;
        while room > 0 && *work > 0 && self.slots.len(slot) > 0 {
            let touched = self.move_block(slot, room.min(*work), |wheel, index, when| {
                if when - start <= slot.span() {
                    wheel.run.push(&mut wheel.slab, index, when);
                } else {
                    // Reset to a later time while it waited here.
                    wheel.file(index, when);
                }
            });
            room -= touched;
            *work -= touched;
        }
        if slot.level() > 0 {
            self.run.sort();
        }
    }

    /// Takes the oldest entry of `slot`, which is of the lowest level and due, and its timer if that is to fire.
    pub(super) fn take_one(&mut self, slot: Slot, start: u64) -> Option<u32> {
        self.position = start;
        let mut entry = [NONE];
        let (_, place) = self.slots.take(slot, &mut entry);
        let index = entry[0];
        let when = self.slab.when_at(index, place)?;
        if when > start {
            self.file(index, when);
        }
        self.slots.leave(slot, 1);
        (when == start).then_some(index)
    }
}

//! The slots: each is a first-in-first-out queue of entries. Bitmaps mark the slots with timers.

use std::{cmp, iter};

use super::chunk::Chunks;
use super::level::{CHUNK, NONE};
use super::level::{LEVELS, SLOTS, Slot};
use super::location::Location;
use super::slab::Slab;

/// All slots of all levels.
///
/// **Invariant:** the bit of a slot is set exactly while a live timer has its entry there. So the
/// wheel never wakes up for cancelled timers, and removing the last timer of a slot frees all its
/// entries.
pub(super) struct Slots {
    queues: Box<[SlotQueue]>,
    chunks: Chunks,
    /// Which slots are occupied: one bit per slot, one word per level.
    occupied: [u64; LEVELS],
    /// Which levels have an occupied slot: one bit per level.
    levels: u16,
    /// The slot that is only partly spread over the levels below, because `work` ran out.
    open: Option<Slot>,
}

/// The entries of a slot: the oldest in chunk `head` at `begin`, the newest in chunk `tail` before
/// `end`. A single entry needs no chunk: then `head` is `NONE`, and `alone` is the entry.
#[derive(Clone, Copy)]
struct SlotQueue {
    head: u32,
    tail: u32,
    begin: u8,
    end: u8,
    alone: u32,
    /// How many entries the slot has, including stale ones.
    len: u32,
    /// How many entries of the slot are not stale.
    live: u32,
}

impl SlotQueue {
    const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
        begin: 0,
        end: 0,
        alone: NONE,
        len: 0,
        live: 0,
    };

    /// Whether so many entries are stale that they should be removed. Small queues are exempt: they
    /// waste at most their last chunk.
    fn is_stale(&self) -> bool {
        self.len - self.live > self.live + CHUNK as u32
    }
}

impl Slots {
    pub(super) fn new() -> Self {
        Self {
            queues: vec![SlotQueue::EMPTY; SLOTS].into(),
            chunks: Chunks::new(),
            occupied: [0; LEVELS],
            levels: 0,
            open: None,
        }
    }

    /// The slot to visit next, and its first tick, which is a lower bound of the deadlines in all
    /// slots.
    #[inline]
    pub(super) fn first(&self, position: u64) -> Option<(Slot, u64)> {
        if let Some(slot) = self.open {
            // The remaining entries of the open slot may have earlier deadlines than those already
            // spread.
            return Some((slot, position));
        }
        let level = self.levels.trailing_zeros() as usize;
        let digit = self.occupied.get(level)?.trailing_zeros() as usize;
        let slot = Slot::new(level, digit);
        Some((slot, slot.start(position)))
    }

    /// All occupied slots with their first ticks, in the order in which the wheel visits them.
    pub(super) fn in_order(&self, position: u64) -> impl Iterator<Item = (Slot, u64)> {
        let by_level = (0..LEVELS).flat_map(move |level| {
            let mut digits = self.occupied[level];
            iter::from_fn(move || {
                let digit = (digits != 0).then(|| digits.trailing_zeros() as usize)?;
                digits &= digits - 1;
                Some(Slot::new(level, digit))
            })
        });
        let open = self.open;
        let rest = by_level.filter(move |&slot| open != Some(slot));
        open.into_iter()
            .chain(rest)
            .map(move |slot| (slot, slot.start(position)))
    }

    /// Makes `slot` the next one until it is empty.
    #[inline]
    pub(super) fn open(&mut self, slot: Slot) {
        self.open = Some(slot);
    }

    /// The slot that the entries of `chunk` belong to.
    #[inline]
    pub(super) fn owner(&self, chunk: u32) -> Slot {
        self.chunks.owner(chunk)
    }

    /// How many entries the slot has, including stale ones.
    #[inline]
    pub(super) fn len(&self, slot: Slot) -> usize {
        self.queues[slot.index()].len as usize
    }

    /// Appends an entry for the timer at `index`, and sets the location of the timer.
    #[inline]
    pub(super) fn push<T>(&mut self, slab: &mut Slab<T>, slot: Slot, index: u32) {
        let queue = &mut self.queues[slot.index()];
        queue.live += 1;
        queue.len += 1;
        if queue.len == 1 {
            queue.alone = index;
            slab.set_location(index, Location::alone(slot));
            self.occupied[slot.level()] |= 1 << slot.digit();
            self.levels |= 1 << slot.level();
            return;
        }
        if queue.head == NONE {
            let chunk = self.chunks.allocate(slot);
            self.chunks.set(chunk, 0, queue.alone);
            slab.set_location(queue.alone, Location::in_chunk(chunk, 0));
            (queue.head, queue.tail, queue.begin, queue.end) = (chunk, chunk, 0, 1);
        } else if usize::from(queue.end) == CHUNK {
            let chunk = self.chunks.allocate(slot);
            self.chunks.link(queue.tail, chunk);
            (queue.tail, queue.end) = (chunk, 0);
        }
        self.chunks.set(queue.tail, queue.end, index);
        slab.set_location(index, Location::in_chunk(queue.tail, queue.end));
        queue.end += 1;
    }

    /// Moves the oldest entries, of one chunk at most, into `block`. Returns how many it moved, and
    /// the location of the first.
    ///
    /// The caller must find out which are valid *before* it pushes any entry, because a push may
    /// reuse the chunk. After it has given them new locations, it calls [`leave`](Self::leave) with
    /// their number.
    #[inline]
    pub(super) fn take(&mut self, slot: Slot, block: &mut [u32]) -> (usize, Location) {
        let queue = &mut self.queues[slot.index()];
        if queue.head == NONE {
            let taken = cmp::min(queue.len as usize, block.len());
            block[..taken].fill(queue.alone);
            queue.len -= taken as u32;
            return (taken, Location::alone(slot));
        }
        let location = Location::in_chunk(queue.head, queue.begin);
        let end = if queue.head == queue.tail {
            usize::from(queue.end)
        } else {
            CHUNK
        };
        let taken = cmp::min(end - usize::from(queue.begin), block.len());
        self.chunks
            .copy(queue.head, queue.begin, &mut block[..taken]);
        queue.len -= taken as u32;
        queue.begin += taken as u8;
        if usize::from(queue.begin) == end {
            let spent = queue.head;
            (queue.head, queue.begin) = (self.chunks.next(spent), 0);
            self.chunks.free(spent, spent);
        }
        (taken, location)
    }

    /// Counts `timers` entries of `slot` as stale. Without a valid entry, the slot is freed.
    #[inline]
    pub(super) fn leave(&mut self, slot: Slot, timers: usize) {
        let queue = &mut self.queues[slot.index()];
        queue.live -= timers as u32;
        if queue.live > 0 {
            return;
        }
        if queue.head != NONE {
            self.chunks.free(queue.head, queue.tail);
        }
        *queue = SlotQueue::EMPTY;
        self.occupied[slot.level()] &= !(1 << slot.digit());
        if self.occupied[slot.level()] == 0 {
            self.levels &= !(1 << slot.level());
        }
        if self.open == Some(slot) {
            self.open = None;
        }
    }

    /// Removes the stale entries of the oldest chunk, if most entries of the slot are stale.
    ///
    /// The valid entries move to the back, so that the next call finds other entries. So a
    /// cancellation reads at most 128 entries, and one pass over the slot removes at least half of
    /// its entries.
    #[inline]
    pub(super) fn evacuate<T>(&mut self, slab: &mut Slab<T>, slot: Slot) {
        if self.queues[slot.index()].is_stale() {
            self.evacuate_chunk(slab, slot);
        }
    }

    #[cold]
    fn evacuate_chunk<T>(&mut self, slab: &mut Slab<T>, slot: Slot) {
        let mut block = [NONE; CHUNK];
        let (taken, location) = self.take(slot, &mut block);
        let mut kept = 0;
        for offset in 0..taken {
            if slab.when_at(block[offset], location.plus(offset)).is_some() {
                block[kept] = block[offset];
                kept += 1;
            }
        }
        for &index in &block[..kept] {
            self.push(slab, slot, index);
        }
        self.leave(slot, kept);
    }

    /// The entries of a slot with their locations, including stale entries.
    pub(super) fn entries(&self, slot: Slot) -> impl Iterator<Item = (u32, Location)> {
        let queue = self.queues[slot.index()];
        let alone =
            (queue.head == NONE && queue.len > 0).then(|| (queue.alone, Location::alone(slot)));
        let mut chunk = queue.head;
        let chunks = iter::from_fn(move || {
            let current = (chunk != NONE).then_some(chunk)?;
            chunk = self.chunks.next(current);
            Some(current)
        });
        let chunked = chunks.flat_map(move |chunk| {
            let begin = if chunk == queue.head { queue.begin } else { 0 };
            let end = if chunk == queue.tail {
                queue.end
            } else {
                CHUNK as u8
            };
            (begin..end).map(move |offset| {
                (
                    self.chunks.entry(chunk, offset),
                    Location::in_chunk(chunk, offset),
                )
            })
        });
        alone.into_iter().chain(chunked)
    }

    /// How many entries there are, and for how many there is memory.
    #[cfg(test)]
    pub(super) fn footprint(&self) -> (usize, usize) {
        let entries = self.queues.iter().map(|queue| queue.len as usize).sum();
        (entries, self.chunks.allocated() * CHUNK)
    }
}

//! The slots: a first-in-first-out queue of entries each, and bitmaps of those that hold a timer.

use std::{cmp, iter};

use super::chunk::{CHUNK, Chunks, NONE};
use super::level::{LEVELS, SLOTS, Slot};
use super::place::Place;
use super::slab::Slab;

/// All slots of all levels.
///
/// **Invariant:** a slot's bit is set exactly while a live timer has its entry there.
/// So a wheel never wakes for a slot of cancelled timers, and what they leave behind is freed with the last of them.
pub(super) struct Slots {
    queues: Box<[Queue]>,
    chunks: Chunks,
    /// A bit a slot, a word a level.
    occupied: [u64; LEVELS],
    /// A bit for each level with an occupied slot.
    levels: u16,
    /// The slot whose entries are being spread over the levels below, when work ran out in the middle.
    open: Option<Slot>,
}

/// A slot's entries, the oldest in chunk `head` at `begin`, the newest in chunk `tail` before `end`.
/// A lone entry needs no chunk: then there is no `head`, and `alone` is the entry.
#[derive(Clone, Copy)]
struct Queue {
    head: u32,
    tail: u32,
    begin: u8,
    end: u8,
    alone: u32,
    /// Entries, stale ones included.
    len: u32,
    /// Entries that are not stale.
    live: u32,
}

impl Queue {
    const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
        begin: 0,
        end: 0,
        alone: NONE,
        len: 0,
        live: 0,
    };

    /// Whether so many entries are stale that it is time to look for them.
    /// The slack keeps small queues, which waste no more than their last chunk, out of it.
    fn is_stale(&self) -> bool {
        self.len - self.live > self.live + CHUNK as u32
    }
}

impl Slots {
    pub(super) fn new() -> Self {
        Self {
            queues: vec![Queue::EMPTY; SLOTS].into(),
            chunks: Chunks::new(),
            occupied: [0; LEVELS],
            levels: 0,
            open: None,
        }
    }

    /// The slot to visit next and its first tick, at or before every deadline that is filed in any slot.
    #[inline]
    pub(super) fn first(&self, position: u64) -> Option<(Slot, u64)> {
        if let Some(slot) = self.open {
            // Its remaining entries may come before those that have already been spread.
            return Some((slot, position));
        }
        let level = self.levels.trailing_zeros() as usize;
        let digit = self.occupied.get(level)?.trailing_zeros() as usize;
        let slot = Slot::new(level, digit);
        Some((slot, slot.start(position)))
    }

    /// All occupied slots in the order in which they will be visited, with their first ticks.
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

    /// Says that what is left in `slot` comes first until it is empty.
    #[inline]
    pub(super) fn open(&mut self, slot: Slot) {
        self.open = Some(slot);
    }

    /// The slot of an entry in `chunk`.
    #[inline]
    pub(super) fn owner(&self, chunk: u32) -> Slot {
        self.chunks.owner(chunk)
    }

    /// Entries in the slot, stale ones included.
    #[inline]
    pub(super) fn len(&self, slot: Slot) -> usize {
        self.queues[slot.index()].len as usize
    }

    /// Appends an entry for the timer at `index` and points the timer at it.
    #[inline]
    pub(super) fn push<T>(&mut self, slab: &mut Slab<T>, slot: Slot, index: u32) {
        let queue = &mut self.queues[slot.index()];
        queue.live += 1;
        queue.len += 1;
        if queue.len == 1 {
            queue.alone = index;
            slab.set_place(index, Place::alone(slot));
            self.occupied[slot.level()] |= 1 << slot.digit();
            self.levels |= 1 << slot.level();
            return;
        }
        if queue.head == NONE {
            let chunk = self.chunks.allocate(slot);
            self.chunks.set(chunk, 0, queue.alone);
            slab.set_place(queue.alone, Place::in_chunk(chunk, 0));
            (queue.head, queue.tail, queue.begin, queue.end) = (chunk, chunk, 0, 1);
        } else if usize::from(queue.end) == CHUNK {
            let chunk = self.chunks.allocate(slot);
            self.chunks.link(queue.tail, chunk);
            (queue.tail, queue.end) = (chunk, 0);
        }
        self.chunks.set(queue.tail, queue.end, index);
        slab.set_place(index, Place::in_chunk(queue.tail, queue.end));
        queue.end += 1;
    }

    /// Moves the oldest entries, of one chunk at most, into `block`, and says how many and the place of the first.
    ///
    /// The caller finds out which are valid *before* it pushes anything (a push may reuse the chunk),
    /// and reports their number to [`leave`](Self::leave) when it has given them a new place.
    #[inline]
    pub(super) fn take(&mut self, slot: Slot, block: &mut [u32]) -> (usize, Place) {
        let queue = &mut self.queues[slot.index()];
        if queue.head == NONE {
            let taken = cmp::min(queue.len as usize, block.len());
            block[..taken].fill(queue.alone);
            queue.len -= taken as u32;
            return (taken, Place::alone(slot));
        }
        let place = Place::in_chunk(queue.head, queue.begin);
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
        (taken, place)
    }

    /// Counts off `timers` whose entries in `slot` are no longer valid; the last one frees the slot, whatever its length.
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
        *queue = Queue::EMPTY;
        self.occupied[slot.level()] &= !(1 << slot.digit());
        if self.occupied[slot.level()] == 0 {
            self.levels &= !(1 << slot.level());
        }
        if self.open == Some(slot) {
            self.open = None;
        }
    }

    /// Drops the stale entries of the oldest chunk if most of the slot's entries are stale.
    ///
    /// The valid ones go to the back, so that the next call finds other entries: a cancellation pays for looking at 128 at most,
    /// and going once round the queue removes at least half of it.
    #[inline]
    pub(super) fn evacuate<T>(&mut self, slab: &mut Slab<T>, slot: Slot) {
        if self.queues[slot.index()].is_stale() {
            self.evacuate_chunk(slab, slot);
        }
    }

    #[cold]
    fn evacuate_chunk<T>(&mut self, slab: &mut Slab<T>, slot: Slot) {
        let mut block = [NONE; CHUNK];
        let (taken, place) = self.take(slot, &mut block);
        let mut kept = 0;
        for offset in 0..taken {
            if slab.when_at(block[offset], place.plus(offset)).is_some() {
                block[kept] = block[offset];
                kept += 1;
            }
        }
        for &index in &block[..kept] {
            self.push(slab, slot, index);
        }
        self.leave(slot, kept);
    }

    /// The entries of a slot, stale ones included, with their places.
    pub(super) fn entries(&self, slot: Slot) -> impl Iterator<Item = (u32, Place)> {
        let queue = self.queues[slot.index()];
        let alone =
            (queue.head == NONE && queue.len > 0).then(|| (queue.alone, Place::alone(slot)));
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
                    Place::in_chunk(chunk, offset),
                )
            })
        });
        alone.into_iter().chain(chunked)
    }

    /// How many entries there are and how many there is memory for.
    #[cfg(test)]
    pub(super) fn footprint(&self) -> (usize, usize) {
        let entries = self.queues.iter().map(|queue| queue.len as usize).sum();
        (entries, self.chunks.allocated() * CHUNK)
    }
}

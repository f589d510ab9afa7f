//! Memory for the queues: chunks of entries in linked lists, recycled through a free list.

use super::grow::grow;
use super::level::Slot;
use super::place::CHUNKS_MAX;

/// Entries in a chunk: half a kilobyte, so that links cost little and a queue wastes little.
pub(super) const CHUNK: usize = 128;
/// No chunk, or no timer.
pub(super) const NONE: u32 = u32::MAX;

/// The arena of chunks.
pub(super) struct Chunks {
    entries: Vec<[u32; CHUNK]>,
    links: Vec<Link>,
    free: u32,
}

#[derive(Clone, Copy)]
struct Link {
    /// The next chunk of the queue, or of the free list.
    next: u32,
    /// Whose queue this is, for the timer that knows only its place. Meaningless in the free list.
    owner: Slot,
}

impl Chunks {
    pub(super) fn new() -> Self {
        Self { entries: Vec::new(), links: Vec::new(), free: NONE }
    }

    #[inline]
    pub(super) fn allocate(&mut self, owner: Slot) -> u32 {
        let link = Link { next: NONE, owner };
        let chunk = self.free;
        if chunk == NONE {
            let chunk = self.entries.len() as u32;
            // Holds because timers are limited in number, and stale entries to about as many.
            assert!(chunk < CHUNKS_MAX, "the wheel has outgrown its entries");
            grow(&mut self.entries);
            self.entries.push([NONE; CHUNK]);
            self.links.push(link);
            return chunk;
        }
        self.free = self.links[chunk as usize].next;
        self.links[chunk as usize] = link;
        chunk
    }

    /// Frees the list from `head` to `tail`, however long, in one step.
    #[inline]
    pub(super) fn free(&mut self, head: u32, tail: u32) {
        self.links[tail as usize].next = self.free;
        self.free = head;
    }

    #[inline]
    pub(super) fn link(&mut self, chunk: u32, next: u32) {
        self.links[chunk as usize].next = next;
    }

    #[inline]
    pub(super) fn next(&self, chunk: u32) -> u32 {
        self.links[chunk as usize].next
    }

    #[inline]
    pub(super) fn owner(&self, chunk: u32) -> Slot {
        self.links[chunk as usize].owner
    }

    #[inline]
    pub(super) fn entries(&self, chunk: u32) -> &[u32; CHUNK] {
        &self.entries[chunk as usize]
    }

    #[inline]
    pub(super) fn set(&mut self, chunk: u32, offset: u8, entry: u32) {
        self.entries[chunk as usize][usize::from(offset)] = entry;
    }

    #[cfg(test)]
    pub(super) fn allocated(&self) -> usize {
        self.entries.len()
    }
}

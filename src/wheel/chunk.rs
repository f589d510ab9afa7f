//! Memory for the queues: chunks of entries in linked lists, reused through a free list.

use super::level::Slot;
use super::level::{CHUNK, NONE};
use super::location::CHUNKS_MAX;
use super::slab::grow;

/// The arena of chunks.
pub(super) struct Chunks {
    /// The low three bytes of each entry. They suffice for up to 2^24 timers.
    entries: Vec<[[u8; 3]; CHUNK]>,
    /// The high byte of each entry; empty until an entry needs one.
    highs: Vec<[u8; CHUNK]>,
    links: Vec<Link>,
    free: u32,
}

#[derive(Clone, Copy)]
struct Link {
    /// The next chunk of the queue, or of the free list.
    next: u32,
    /// The slot of the queue, so that a timer's location leads to its slot. Unused in the free
    /// list.
    owner: Slot,
}

impl Chunks {
    pub(super) fn new() -> Self {
        Self {
            entries: Vec::new(),
            highs: Vec::new(),
            links: Vec::new(),
            free: NONE,
        }
    }

    #[inline]
    pub(super) fn allocate(&mut self, owner: Slot) -> u32 {
        let link = Link { next: NONE, owner };
        let chunk = self.free;
        if chunk == NONE {
            let chunk = self.entries.len() as u32;
            // The number of timers is limited, and stale entries are limited to about as many.
            assert!(chunk < CHUNKS_MAX, "the wheel has outgrown its entries");
            grow(&mut self.entries);
            self.entries.push([[0; 3]; CHUNK]);
            if !self.highs.is_empty() {
                self.add_highs();
            }
            self.links.push(link);
            return chunk;
        }
        self.free = self.links[chunk as usize].next;
        self.links[chunk as usize] = link;
        chunk
    }

    /// Frees the list from `head` to `tail` in constant time.
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
    pub(super) fn entry(&self, chunk: u32, offset: u8) -> u32 {
        let (chunk, offset) = (chunk as usize, usize::from(offset));
        whole(
            self.entries[chunk][offset],
            self.highs.get(chunk).map_or(0, |highs| highs[offset]),
        )
    }

    /// Copies the entries of a chunk from `begin` on until `block` is full.
    #[inline]
    pub(super) fn copy(&self, chunk: u32, begin: u8, block: &mut [u32]) {
        let (chunk, begin) = (chunk as usize, usize::from(begin));
        let entries = &self.entries[chunk][begin..];
        match self.highs.get(chunk) {
            None => block
                .iter_mut()
                .zip(entries)
                .for_each(|(entry, &low)| *entry = whole(low, 0)),
            Some(highs) => {
                let both = entries.iter().zip(&highs[begin..]);
                block
                    .iter_mut()
                    .zip(both)
                    .for_each(|(entry, (&low, &high))| *entry = whole(low, high));
            }
        }
    }

    #[inline]
    pub(super) fn set(&mut self, chunk: u32, offset: u8, entry: u32) {
        let [low @ .., high] = entry.to_le_bytes();
        let (chunk, offset) = (chunk as usize, usize::from(offset));
        self.entries[chunk][offset] = low;
        if high != 0 && self.highs.is_empty() {
            self.add_highs();
        }
        if let Some(highs) = self.highs.get_mut(chunk) {
            highs[offset] = high;
        }
    }

    /// Adds a high byte of 0 to each entry that has none.
    #[cold]
    fn add_highs(&mut self) {
        grow(&mut self.highs);
        self.highs.resize(self.entries.len(), [0; CHUNK]);
    }

    #[cfg(test)]
    pub(super) fn allocated(&self) -> usize {
        self.entries.len()
    }
}

#[inline]
fn whole([a, b, c]: [u8; 3], high: u8) -> u32 {
    u32::from_le_bytes([a, b, c, high])
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: u32 = 1 << 24;

    #[test]
    fn entries_keep_their_value_when_high_bytes_are_added() {
        let mut chunks = Chunks::new();
        let slot = Slot::new(0, 0);
        let [first, second] = [chunks.allocate(slot), chunks.allocate(slot)];
        let entries = [0, 1, 255, 256, 65_535, 65_536, LARGE - 1];
        for (offset, &entry) in (0..).zip(&entries) {
            chunks.set(first, offset, entry);
        }
        assert!(chunks.highs.is_empty());
        chunks.set(second, 127, LARGE);
        chunks.set(second, 126, (1 << 30) - 1);
        let third = chunks.allocate(slot);
        chunks.set(third, 0, LARGE + 1);

        for (offset, &entry) in (0..).zip(&entries) {
            assert_eq!(chunks.entry(first, offset), entry);
        }
        let mut block = [NONE; 2];
        chunks.copy(first, 5, &mut block);
        assert_eq!(block, [65_536, LARGE - 1]);
        chunks.copy(second, 126, &mut block);
        assert_eq!(block, [(1 << 30) - 1, LARGE]);
        assert_eq!(chunks.entry(third, 0), LARGE + 1);
    }

    #[test]
    fn a_small_entry_may_follow_a_large_one_in_reused_memory() {
        let mut chunks = Chunks::new();
        let chunk = chunks.allocate(Slot::new(0, 0));
        chunks.set(chunk, 0, 7 * LARGE + 7);
        chunks.free(chunk, chunk);
        assert_eq!(chunks.allocate(Slot::new(0, 1)), chunk);
        chunks.set(chunk, 0, 7);
        assert_eq!(chunks.entry(chunk, 0), 7);
    }
}

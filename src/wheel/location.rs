//! The link from a timer to its entry.
//!
//! An entry holds the index of its timer; the timer's location points back at that entry. An entry
//! whose timer points elsewhere is stale and is skipped. Cancelling or moving a timer therefore
//! does not have to find its entry.

use super::level::{CHUNK, RUN_MAX};
use super::level::{SLOTS, Slot};

/// The location of the one valid entry of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Location(u32);

/// The kind of queue that a location is in.
pub(super) enum Home {
    /// The location is in this chunk of some slot.
    Chunk(u32),
    /// The location is the only entry of this slot.
    Alone(Slot),
    /// The location is in the sorted run.
    Run,
    /// The location is among the overdue timers.
    Overdue,
}

/// Numbers below this are locations in chunks; the other kinds use the top of the range.
const ALONE: u32 = u32::MAX - 8191;
const RUN: u32 = ALONE + SLOTS as u32;
const OVERDUE: u32 = u32::MAX;

const _: () = assert!(RUN as u64 + (RUN_MAX as u64) < OVERDUE as u64);

/// The number of chunks that a `Location` can express.
pub(super) const CHUNKS_MAX: u32 = ALONE / CHUNK as u32;

impl Location {
    pub(super) const OVERDUE: Self = Self(OVERDUE);

    #[inline]
    pub(super) fn in_chunk(chunk: u32, offset: u8) -> Self {
        Self(chunk * CHUNK as u32 + u32::from(offset))
    }

    #[inline]
    pub(super) fn alone(slot: Slot) -> Self {
        Self(ALONE + slot.index() as u32)
    }

    #[inline]
    pub(super) fn in_run(arrival: usize) -> Self {
        Self(RUN + arrival as u32)
    }

    /// The location `offset` entries further on in the same chunk.
    #[inline]
    pub(super) fn plus(self, offset: usize) -> Self {
        Self(self.0 + offset as u32)
    }

    /// Whether the location is in a slot. Cheaper than `home`.
    #[inline]
    pub(super) fn is_in_slot(self) -> bool {
        self.0 < RUN
    }

    #[inline]
    pub(super) fn home(self) -> Home {
        match self.0 {
            position @ ..ALONE => Home::Chunk(position / CHUNK as u32),
            alone @ ALONE..RUN => Home::Alone(Slot::from_index((alone - ALONE) as usize)),
            OVERDUE => Home::Overdue,
            _ => Home::Run,
        }
    }
}

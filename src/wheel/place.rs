//! A timer's half of the link between a timer and its entry.
//!
//! An entry, a timer's index in some queue, names the timer; the timer's place names that entry.
//! An entry whose timer points elsewhere is stale and is skipped, so whoever cancels or moves a timer need not find its entry.

use super::chunk::CHUNK;
use super::level::{SLOTS, Slot};
use super::run::RUN_MAX;

/// Where the one valid entry of a timer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u32);

/// The kinds of queue that a place can be in.
pub(super) enum Home {
    /// In this chunk of some slot.
    Chunk(u32),
    /// The only entry of this slot.
    Alone(Slot),
    /// In the sorted run that is being fired.
    Run,
    /// Among the timers whose deadline the wheel had passed when it was set.
    Overdue,
}

/// The places in chunks come first, numbered through; the few others use the top of the range.
const ALONE: u32 = u32::MAX - 8191;
const RUN: u32 = ALONE + SLOTS as u32;
const OVERDUE: u32 = u32::MAX;

const _: () = assert!(RUN as u64 + (RUN_MAX as u64) < OVERDUE as u64);

/// Chunks whose positions a `Place` can express.
pub(super) const CHUNKS_MAX: u32 = ALONE / CHUNK as u32;

impl Place {
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

    /// The place `offset` entries further on in the same chunk.
    #[inline]
    pub(super) fn plus(self, offset: usize) -> Self {
        Self(self.0 + offset as u32)
    }

    /// Whether it is in a slot, without asking in which.
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

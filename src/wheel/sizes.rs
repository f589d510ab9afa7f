//! Sizes that several parts of the wheel share.

/// Entries in a chunk. At 384 bytes, links cost little and a queue wastes little.
pub(super) const CHUNK: usize = 128;
/// Stands for "no chunk" or "no timer".
pub(super) const NONE: u32 = u32::MAX;
/// Bits of a key that hold the order of arrival.
pub(super) const ARRIVAL_BITS: u32 = 11;
/// Most timers in a run: few enough to stay in the cache between sorting and firing.
pub(super) const RUN_MAX: usize = 1 << ARRIVAL_BITS;

//! Computes the slot of a deadline.
//!
//! A time is a number of eleven digits in base 64. Level `n` has a slot for each value of digit
//! `n`. The level of a deadline is the highest digit in which it differs from the wheel's position,
//! and that digit selects the slot. So all deadlines at one level come before those at the next
//! level, and digits never wrap around.

/// Bits in a digit: a level has 64 slots, as many as a `u64` bitmap has bits.
const DIGIT_BITS: u32 = 6;
/// How many slots a level has.
const DIGITS: usize = 1 << DIGIT_BITS;
/// How many levels the wheel has: enough for every bit of a `u64`, as 11 x 6 >= 64.
pub(super) const LEVELS: usize = u64::BITS.div_ceil(DIGIT_BITS) as usize;
/// How many slots the whole wheel has.
pub(super) const SLOTS: usize = LEVELS * DIGITS;

/// A slot, numbered through all levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(u16);

impl Slot {
    /// The slot of the deadline `when`, for a wheel at `position <= when`.
    #[inline]
    pub(super) fn of(when: u64, position: u64) -> Self {
        debug_assert!(position <= when);
        // The `|` gives level 0 to deadlines that differ in the lowest digit only, or not at all.
        let highest_difference = ((when ^ position) | (DIGITS as u64 - 1)).ilog2();
        let level = highest_difference / DIGIT_BITS;
        let digit = (when >> (level * DIGIT_BITS)) as usize % DIGITS;
        Self::new(level as usize, digit)
    }

    #[inline]
    pub(super) fn new(level: usize, digit: usize) -> Self {
        Self((level * DIGITS + digit) as u16)
    }

    #[inline]
    pub(super) fn from_index(index: usize) -> Self {
        debug_assert!(index < SLOTS);
        Self(index as u16)
    }

    #[inline]
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }

    #[inline]
    pub(super) fn level(self) -> usize {
        self.index() / DIGITS
    }

    #[inline]
    pub(super) fn digit(self) -> usize {
        self.index() % DIGITS
    }

    /// The first tick of an occupied slot. The higher digits are those of the position.
    #[inline]
    pub(super) fn start(self, position: u64) -> u64 {
        let shift = self.shift();
        let above = u64::MAX.checked_shl(shift + DIGIT_BITS).unwrap_or(0);
        (position & above) | ((self.digit() as u64) << shift)
    }

    /// How many ticks lie between the slot's first and its last.
    #[inline]
    pub(super) fn span(self) -> u64 {
        (1 << self.shift()) - 1
    }

    /// How many bits of a time lie below this slot's digit.
    #[inline]
    pub(super) fn shift(self) -> u32 {
        self.level() as u32 * DIGIT_BITS
    }
}

/// How many entries a chunk has. At 384 bytes, links cost little and a queue wastes little.
pub(super) const CHUNK: usize = 128;
/// Stands for "no chunk" or "no timer".
pub(super) const NONE: u32 = u32::MAX;
/// How many bits of a run's key hold the order of arrival.
pub(super) const ARRIVAL_BITS: u32 = 11;
/// The most timers in a run: few enough to stay in the cache between sorting and firing.
pub(super) const RUN_MAX: usize = 1 << ARRIVAL_BITS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_differing_digit_selects_the_slot() {
        for level in 1..LEVELS {
            let boundary = 1_u64 << (level as u32 * DIGIT_BITS);
            assert_eq!(Slot::of(boundary - 1, 0), Slot::new(level - 1, 63));
            assert_eq!(Slot::of(boundary, 0), Slot::new(level, 1));
            assert_eq!(Slot::of(boundary + 1, 0), Slot::new(level, 1));
            assert_eq!(Slot::of(boundary, boundary - 1), Slot::new(level, 1));
            assert_eq!(Slot::of(boundary + 1, boundary), Slot::new(0, 1));
        }
        assert_eq!(Slot::of(u64::MAX, 0), Slot::new(10, 15));
        assert_eq!(Slot::of(u64::MAX, u64::MAX), Slot::new(0, 63));
        assert_eq!(Slot::of(u64::MAX, u64::MAX - 1), Slot::new(0, 63));
    }

    #[test]
    fn a_slot_starts_after_the_position_and_spans_its_deadlines() {
        for position_bits in 0..64 {
            for offset_bits in 0..64 {
                let position = (1_u64 << position_bits) - 1;
                let when = position.saturating_add(1 << offset_bits);
                let slot = Slot::of(when, position);
                let start = slot.start(position);
                assert!(position < start || slot.level() == 0, "{position} {when}");
                assert!(
                    start <= when && when - start <= slot.span(),
                    "{position} {when}"
                );
            }
        }
    }
}

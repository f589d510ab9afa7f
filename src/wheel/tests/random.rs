//! A small seeded generator, so that a failure can be repeated.

/// SplitMix64.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.any()) * u128::from(end)) >> 64) as u64
    }

    /// A number of ticks, of any magnitude up to `2^bits` and mostly near a boundary between
    /// levels.
    pub(super) fn ticks(&mut self, bits: u64) -> u64 {
        let magnitude = 1 << self.below(bits);
        match self.below(4) {
            0 => magnitude - 1,
            1 => magnitude,
            2 => magnitude + 1,
            _ => self.below(magnitude) + magnitude / 2,
        }
    }
}

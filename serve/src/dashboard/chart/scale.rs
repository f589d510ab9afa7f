//! From numbers to places on a chart.

/// The height of a bar: the share that `value` is of `most`, in whole pixels. What is more than 0 is
/// at least 1 pixel high, so that it can be seen.
pub(super) fn height(value: u64, most: u64, pixels: u64) -> u64 {
    if value == 0 || most == 0 {
        return 0;
    }
    let value = u128::from(value.min(most));
    let height = value * u128::from(pixels) / u128::from(most);
    u64::try_from(height).unwrap_or(pixels).clamp(1, pixels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_are_shares_and_never_vanish() {
        for (value, most, expected) in [
            (0, 0, 0),
            (0, 10, 0),
            (1, u64::MAX, 1),
            (5, 10, 50),
            (10, 10, 100),
            (11, 10, 100),
            (u64::MAX, u64::MAX, 100),
            (u64::MAX / 2, u64::MAX, 49),
        ] {
            assert_eq!(height(value, most, 100), expected, "{value} of {most}");
        }
    }
}

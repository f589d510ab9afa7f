//! Converts numbers to positions and heights on a chart.

/// The height of a bar in whole pixels: `value / most * pixels`. A value above 0 gets at least 1
/// pixel, so that it is visible.
pub(super) fn height(value: u64, most: u64, pixels: u64) -> u64 {
    if value == 0 || most == 0 {
        return 0;
    }
    let value = u128::from(value.min(most));
    let height = value * u128::from(pixels) / u128::from(most);
    u64::try_from(height).unwrap_or(pixels).clamp(1, pixels)
}

/// The fraction `part / whole` as an SVG length, such as 12.5%. It is 0% if `whole` is 0.
pub(super) fn percent(part: u64, whole: u64) -> String {
    let thousandths = if whole == 0 {
        0
    } else {
        u128::from(part.min(whole)) * 100_000 / u128::from(whole)
    };
    match thousandths % 1_000 {
        0 => format!("{}%", thousandths / 1_000),
        rest => format!("{}.{rest:03}%", thousandths / 1_000),
    }
}

/// A duration in microseconds, and its name on an axis.
type Mark = (u64, &'static str);

/// All marks that a logarithmic time axis can have.
const MARKS: [Mark; 13] = [
    (100, "100 µs"),
    (1_000, "1 ms"),
    (10_000, "10 ms"),
    (100_000, "100 ms"),
    (1_000_000, "1 s"),
    (10_000_000, "10 s"),
    (60_000_000, "1 min"),
    (600_000_000, "10 min"),
    (3_600_000_000, "1 h"),
    (21_600_000_000, "6 h"),
    (86_400_000_000, "1 d"),
    (432_000_000_000, "5 d"),
    (1_728_000_000_000, "20 d"),
];

/// A logarithmic axis of times, from one mark to another.
pub(super) struct Log {
    marks: &'static [Mark],
}

impl Log {
    /// The shortest axis that contains both durations. A duration beyond the last mark is drawn at
    /// it.
    pub(super) fn of(least_us: u64, most_us: u64) -> Self {
        let last = MARKS.len() - 1;
        let begin = MARKS.iter().rposition(|(us, _)| *us <= least_us);
        let begin = begin.unwrap_or(0).min(last - 1);
        let end = MARKS.iter().position(|(us, _)| *us >= most_us);
        let end = end.unwrap_or(last).max(begin + 1);
        Self {
            marks: &MARKS[begin..=end],
        }
    }

    pub(super) fn marks(&self) -> &'static [Mark] {
        self.marks
    }

    /// The height of a duration above the lower end of the axis, in pixels.
    pub(super) fn height(&self, us: u64, pixels: u64) -> u64 {
        let (least, most) = (self.marks[0].0, self.marks[self.marks.len() - 1].0);
        let logarithm = |us: u64| (us.clamp(least, most) as f64).ln();
        let share = (logarithm(us) - logarithm(least)) / (logarithm(most) - logarithm(least));
        // The axis has a length above 0, so `share` is between 0 and 1.
        (share * pixels as f64).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn height_of_a_positive_value_is_at_least_a_pixel() {
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

    #[test]
    fn positions_are_percentages_from_0_to_100() {
        for (part, whole, expected) in [
            (0, 0, "0%"),
            (1, 3, "33.333%"),
            (1, 8, "12.500%"),
            (u64::MAX, u64::MAX, "100%"),
            (u64::MAX, 1, "100%"),
        ] {
            assert_eq!(percent(part, whole), expected, "{part} of {whole}");
        }
    }

    #[test]
    fn log_axis_has_at_least_two_marks() {
        for (least, most, begin, end) in [
            (0, 0, "100 µs", "1 ms"),
            (724, 2_048, "100 µs", "10 ms"),
            (1_000, 1_000, "1 ms", "10 ms"),
            (128, u64::MAX, "100 µs", "20 d"),
            (u64::MAX, u64::MAX, "5 d", "20 d"),
        ] {
            let axis = Log::of(least, most);
            let marks = axis.marks();
            assert_eq!((marks[0].1, marks[marks.len() - 1].1), (begin, end));
            for us in [0, 1, least, most, u64::MAX] {
                assert!(axis.height(us, 100) <= 100, "{us}");
            }
            assert_eq!(axis.height(marks[0].0, 100), 0);
            assert_eq!(axis.height(marks[marks.len() - 1].0, 100), 100);
        }
        assert_eq!(
            Log::of(1_000, 100_000).height(10_000, 100),
            50,
            "halfway between 1 ms and 100 ms"
        );
    }
}

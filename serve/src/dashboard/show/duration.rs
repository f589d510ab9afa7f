//! Lengths of time.

/// The two largest units: 2 d 4 h, 3 min 20 s, 1.5 s, 850 ms.
pub(in crate::dashboard) fn duration(ms: u64) -> String {
    let (s, minutes, hours, days) = (ms / 1_000, ms / 60_000, ms / 3_600_000, ms / 86_400_000);
    let two = |large: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large} {unit}"),
        small => format!("{large} {unit} {small} {small_unit}"),
    };
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 if ms % 1_000 < 100 => format!("{s} s"),
        1_000..60_000 => format!("{s}.{} s", ms % 1_000 / 100),
        60_000..3_600_000 => two(minutes, "min", s % 60, "s"),
        3_600_000..86_400_000 => two(hours, "h", minutes % 60, "min"),
        _ if days < 10_000 => two(days, "d", hours % 24, "h"),
        _ => format!("{} years", days * 100 / 36_525),
    }
}

/// A measured time in microseconds: 724 µs, 2.0 ms, 1.5 s.
pub(in crate::dashboard) fn micros(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..10_000 => format!("{}.{} ms", us / 1_000, us % 1_000 / 100),
        _ => duration(us / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        for (ms, text) in [
            (0, "0 ms"),
            (850, "850 ms"),
            (1_000, "1 s"),
            (1_500, "1.5 s"),
            (59_999, "59.9 s"),
            (200_000, "3 min 20 s"),
            (7_200_000, "2 h"),
            (187_200_000, "2 d 4 h"),
            (3_155_760_000_000, "100 years"),
        ] {
            assert_eq!(duration(ms), text);
        }
        for (us, text) in [(724, "724 µs"), (2_048, "2.0 ms"), (1_500_000, "1.5 s")] {
            assert_eq!(micros(us), text);
        }
    }
}

//! Formats numbers and durations.

use crate::dashboard::show::Markup;

/// Formats a number with separators: 12,345,678.
pub(in crate::dashboard) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Shortens a number to 12.3 M, with the exact number as its tooltip. Below 10,000 the exact
/// number.
pub(in crate::dashboard) fn short(exact: u64) -> Markup {
    let (unit, divisor) = match exact {
        0..10_000 => return Markup::of(number(exact)),
        10_000..1_000_000 => ("k", 1_000),
        1_000_000..1_000_000_000 => ("M", 1_000_000),
        _ => ("G", 1_000_000_000),
    };
    let tenths = exact / (divisor / 10);
    let (whole, tenth) = (number(tenths / 10), tenths % 10);
    Markup::of(format!(
        "<span title=\"{}\">{whole}.{tenth} {unit}</span>",
        number(exact)
    ))
}

/// Formats how many a second: 0, 0.3, 12, 1,234.
pub(in crate::dashboard) fn rate(per_second: f64) -> String {
    match per_second {
        none if none < 0.05 => "0".to_owned(),
        few if few < 9.95 => format!("{few:.1}"),
        // Rates of messages are far below the largest number.
        many => number(many.round() as u64),
    }
}

/// Formats `part / whole` in percent, such as 46.9 %; a dash if `whole` is 0.
pub(in crate::dashboard) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    let per_mille = (u128::from(part) * 2_000 / u128::from(whole)).div_ceil(2);
    format!("{}.{} %", per_mille / 10, per_mille % 10)
}

/// Formats a duration by its two largest units: 2 d 4 h, 3 min 20 s, 1.5 s, 850 ms.
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

/// Formats a measured duration in microseconds: 724 µs, 2.0 ms, 1.5 s.
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
    fn short_numbers_keep_the_exact_number_as_tooltip() {
        for (exact, grouped, shortened) in [
            (0, "0", "0"),
            (999, "999", "999"),
            (9_999, "9,999", "9,999"),
            (10_000, "10,000", "<span title=\"10,000\">10.0 k</span>"),
            (999_999, "999,999", "<span title=\"999,999\">999.9 k</span>"),
            (
                12_345_678,
                "12,345,678",
                "<span title=\"12,345,678\">12.3 M</span>",
            ),
            (
                u64::MAX,
                "18,446,744,073,709,551,615",
                "<span title=\"18,446,744,073,709,551,615\">18,446,744,073.7 G</span>",
            ),
        ] {
            assert_eq!(number(exact), grouped);
            assert_eq!(short(exact).to_string(), shortened);
        }
    }

    #[test]
    fn percentages_are_rounded_to_a_tenth() {
        assert_eq!(percent(469, 1_000), "46.9 %");
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(percent(2, 3), "66.7 %");
        assert_eq!(percent(u64::MAX, u64::MAX), "100.0 %");
        assert_eq!(percent(0, 0), "–");
        let rates = [0.0, 0.04, 0.26, 9.94, 9.96, 1_234.4].map(rate);
        assert_eq!(rates, ["0", "0", "0.3", "9.9", "10", "1,234"]);
    }
}

#[cfg(test)]
mod duration_tests {
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

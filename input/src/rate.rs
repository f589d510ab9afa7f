//! Parses rates of a queue.

use std::time::Duration;

use crate::error::quoted;
use crate::{Error, time};

/// The largest number of starts in a rate.
const MAX_STARTS: u64 = 1_000_000;
/// The longest window of a rate: 30 days.
const MAX_WINDOW: Duration = Duration::from_secs(30 * 86_400);

/// A rate: the most starts in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// 1 to 1,000,000.
    pub starts: u32,
    /// 1 ms to 30 days.
    pub window: Duration,
}

/// Reads a rate: a number of starts, a slash or `per`, and a rate window such as `10s`, or its unit
/// alone.
///
/// # Errors
/// If the text is no rate, or is out of the range.
///
/// ```
/// let rate = dueq_input::rate("100/min")?;
/// assert_eq!((rate.starts, rate.window.as_secs()), (100, 60));
/// assert_eq!(dueq_input::rate("100 per minute")?, rate);
/// # Ok::<(), dueq_input::Error>(())
/// ```
pub fn rate(text: &str) -> Result<Rate, Error> {
    let wrong = || {
        Error::new(format!(
            "{} is no rate: write 1 to {MAX_STARTS} starts and a window of 1ms to 30d, such as 500/s, 100 per minute or 50/10s",
            quoted(text)
        ))
    };
    let parts = text.split_once('/').or_else(|| text.split_once(" per "));
    let (starts, window) = parts.ok_or_else(wrong)?;
    let (starts, window) = (starts.trim(), window.trim());
    if starts.is_empty() || !starts.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let is_unit = window.starts_with(|c: char| c.is_ascii_lowercase());
    let one = if is_unit { "1" } else { "" };
    let window = time::period(&format!("{one}{window}")).map_err(|_| wrong())?;
    let starts = starts.parse().unwrap_or(u64::MAX);
    let in_range = (1..=MAX_STARTS).contains(&starts) && window <= MAX_WINDOW;
    match u32::try_from(starts) {
        Ok(starts) if in_range => Ok(Rate { starts, window }),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_starts_and_a_window_or_unit() {
        for (text, starts, ms) in [
            ("50/1s", 50, 1_000),
            ("500/s", 500, 1_000),
            ("100/min", 100, 60_000),
            ("5 / 10s", 5, 10_000),
            ("1/day", 1, 86_400_000),
            ("1000000/30d", 1_000_000, 2_592_000_000),
            ("1/1ms", 1, 1),
            ("2/PT1S", 2, 1_000),
            ("5 per second", 5, 1_000),
            ("5 per 10 s", 5, 10_000),
            ("300 per hour", 300, 3_600_000),
        ] {
            let window = Duration::from_millis(ms);
            assert_eq!(rate(text), Ok(Rate { starts, window }), "{text}");
        }
    }

    #[test]
    fn other_rates_are_refused_with_the_range() {
        for text in [
            "",
            "50",
            "0/1s",
            "1000001/s",
            "-1/s",
            "1.5/s",
            "5/0s",
            "5/-1s",
            "5/31d",
            "5/36500d",
            "5/100years",
            "5/",
            "/s",
            "k/s",
            "5/1s/5",
            "5/fortnight",
            "5 per",
            "5 per second per second",
            "99999999999999999999999/s",
        ] {
            let error = rate(text).expect_err(text);
            assert!(
                error.reason().contains("1 to 1000000 starts")
                    && error.reason().contains("1ms to 30d"),
                "{text}: {error}"
            );
        }
    }
}

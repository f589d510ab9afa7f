//! Parses delays and moments.

mod moment;

use std::time::Duration;

use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, SpanRelativeTo};

use crate::Error;
use crate::error::quoted;

pub use moment::moment;

/// Reads a delay: `48h`, `1500ms`, `1h 30m`, `2 days` (of 24 hours), `PT48H`.
///
/// # Errors
/// If the text is no delay, has no fixed length such as a month, or is negative.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(dueq_input::delay("1h 30m"), Ok(Duration::from_secs(5_400)));
/// assert!(dueq_input::delay("1 month").is_err());
/// ```
pub fn delay(text: &str) -> Result<Duration, Error> {
    let duration = fixed_length(text)?;
    if duration < SignedDuration::ZERO {
        return Err(Error::new(format!(
            "{} is negative: a message cannot be due before it is pushed",
            quoted(text)
        )));
    }
    Ok(duration.unsigned_abs())
}

/// Parses a period: like a delay, but longer than 0.
///
/// # Errors
/// If the text is not a delay, has no fixed length, or is not longer than 0.
pub fn period(text: &str) -> Result<Duration, Error> {
    let duration = fixed_length(text)?;
    if duration <= SignedDuration::ZERO {
        return Err(Error::new(format!(
            "{} is no period: it must be longer than 0",
            quoted(text)
        )));
    }
    Ok(duration.unsigned_abs())
}

fn fixed_length(text: &str) -> Result<SignedDuration, Error> {
    const EXAMPLES: &str = "write a number and a unit, such as 48h, 1500ms, '1h 30m' or '2 days'";
    let span: jiff::Span = text
        .parse()
        .map_err(|_| Error::new(format!("{} is no delay: {EXAMPLES}", quoted(text))))?;
    span.to_duration(SpanRelativeTo::days_are_24_hours())
        .map_err(|_| Error::new(format!("{} has no fixed length: {EXAMPLES}", quoted(text))))
}

/// Finds a time zone by its IANA name, in the rules that are compiled in, which the library uses as
/// well. The machine's own rules are not used.
///
/// # Errors
/// If there is no such zone.
pub fn zone(name: &str) -> Result<TimeZone, Error> {
    TimeZoneDatabase::bundled().get(name).map_err(|_| {
        Error::new(format!(
            "{} is no time zone: write its IANA name, such as Asia/Shanghai or UTC",
            quoted(name)
        ))
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::Wording;

    #[test]
    fn delay_accepts_common_notations() {
        for (text, ms) in [
            ("48h", 172_800_000),
            ("1500ms", 1_500),
            ("1h 30m", 5_400_000),
            ("2 days", 172_800_000),
            ("0s", 0),
            ("PT48H", 172_800_000),
            ("1.5s", 1_500),
        ] {
            assert_eq!(delay(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn delay_refuses_other_text_with_a_reason() {
        for text in [
            "",
            "48",
            "NaN",
            "inf",
            "-",
            "soon",
            "1 month",
            "99999999999999999999h",
        ] {
            assert!(delay(text).is_err(), "{text}");
        }
        assert!(delay("-5s").is_err_and(|error| error.reason().contains("negative")));
    }

    #[test]
    fn errors_truncate_long_texts() {
        for text in ["x", "9", "2026-12-01T20:00:00+01:00[x"] {
            let text = text.repeat(100_000);
            let errors = [
                delay(&text).expect_err("no delay"),
                period(&text).expect_err("no period"),
                zone(&text).expect_err("no zone"),
                moment(&text, None, Timestamp::UNIX_EPOCH, Wording::Fields).expect_err("no moment"),
            ];
            for error in errors {
                assert!(error.to_string().len() < 1_100, "{error}");
            }
        }
    }
}

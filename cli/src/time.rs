//! Reading delays and moments as people write them.

use std::time::{Duration, SystemTime};

use jiff::{SignedDuration, SpanRelativeTo, Timestamp, Zoned};

/// A delay: `48h`, `1500ms`, `1h 30m`, `2 days` (of 24 hours), `PT48H`.
pub(crate) fn delay(text: &str) -> Result<Duration, String> {
    const EXAMPLES: &str = "write a number and a unit, such as 48h, 1500ms, '1h 30m' or '2 days'";
    let span: jiff::Span = text.parse().map_err(|_| format!("{text:?} is no delay: {EXAMPLES}"))?;
    let duration = span
        .to_duration(SpanRelativeTo::days_are_24_hours())
        .map_err(|_| format!("{text:?} has no fixed length: {EXAMPLES}"))?;
    if duration < SignedDuration::ZERO {
        return Err(format!("{text:?} is negative: a message cannot be due before it is pushed"));
    }
    Ok(duration.unsigned_abs())
}

/// A moment with its offset or zone: `2026-12-01T20:00:00+08:00`, `2026-12-01T12:00:00Z`, `2026-12-01T20:00:00[Asia/Shanghai]`.
pub(crate) fn moment(text: &str) -> Result<SystemTime, String> {
    let timestamp = match text.parse::<Timestamp>() {
        Ok(timestamp) => timestamp,
        Err(_) => text.parse::<Zoned>().map(|zoned| zoned.timestamp()).map_err(|_| {
            format!("{text:?} is no moment: write 2026-12-01T20:00:00+08:00, 2026-12-01T12:00:00Z or 2026-12-01T20:00:00[Asia/Shanghai]")
        })?,
    };
    Ok(timestamp.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_as_people_write_them() {
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
    fn delays_that_are_none_are_refused_with_the_reason() {
        for text in ["", "48", "NaN", "inf", "-", "soon", "1 month", "99999999999999999999h"] {
            assert!(delay(text).is_err(), "{text}");
        }
        assert!(delay("-5s").is_err_and(|reason| reason.contains("negative")));
    }

    #[test]
    fn one_moment_in_three_notations() {
        let expected = SystemTime::UNIX_EPOCH + Duration::from_secs(1_796_126_400);
        for text in ["2026-12-01T12:00:00Z", "2026-12-01T20:00:00+08:00", "2026-12-01T20:00:00[Asia/Shanghai]"] {
            assert_eq!(moment(text), Ok(expected), "{text}");
        }
        assert!(moment("2026-12-01T20:00:00").is_err(), "a moment without a zone is no moment");
    }
}

//! Parses delays and moments.

use std::time::{Duration, SystemTime};

use jiff::civil::{DateTime, Time};
use jiff::fmt::temporal::{DateTimeParser, Pieces};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, SpanRelativeTo, Timestamp};

use crate::error::quoted;
use crate::{Error, Wording};

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

/// Reads a moment in one of these notations:
///
/// - `now`, or Unix milliseconds;
/// - a time with its offset or zone: `2026-12-01T20:00:00+08:00`,
///   `2026-12-01T20:00:00[Asia/Shanghai]`;
/// - a time of clocks in `zone`: `2026-12-01 20:00`, `today 20:00`, `tomorrow 20:00`.
///
/// `now` is the present time.
///
/// # Errors
/// If the text is no moment, if it needs a zone and there is none, or if the clocks of the zone
/// skip the time or show it twice.
pub fn moment(
    text: &str,
    zone: Option<&TimeZone>,
    now: Timestamp,
    wording: Wording,
) -> Result<SystemTime, Error> {
    let shown = quoted(text);
    let no_moment = || {
        let tz = wording.name("tz");
        Error::new(format!(
            "{shown} is no moment: write now, 2026-12-01T20:00:00+08:00, 2026-12-01T20:00:00[Asia/Shanghai], \
             Unix milliseconds such as 1796126400000, or with {tz} '2026-12-01 20:00', 'today 20:00' or 'tomorrow 20:00'"
        ))
    };
    let no_zone = || {
        let (tz, example) = (wording.name("tz"), wording.example("tz", "Asia/Shanghai"));
        Error::new(format!(
            "{shown} has no zone: add {tz}, such as {example}, or an offset, such as +08:00"
        ))
    };
    let other = |error: jiff::Error| Error::new(format!("{shown}: {error}"));

    if text == "now" {
        return Ok(now.into());
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // 13 digits reach from 2001 to 2286. Unix seconds have fewer digits, and dates without
        // separators have another number, too.
        let ms = text
            .parse()
            .ok()
            .filter(|ms| text.len() == 13 && *ms >= 1_000_000_000_000);
        let time = ms.map(|ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms));
        return time.ok_or_else(|| {
            Error::new(format!(
                "{shown} is no Unix time in milliseconds, which has 13 digits, such as 1796126400000"
            ))
        });
    }
    if let Some((day, time)) = text
        .split_once(' ')
        .filter(|(day, _)| matches!(*day, "today" | "tomorrow"))
    {
        let time: Time = time.trim().parse().map_err(|_| no_moment())?;
        let zone = zone.ok_or_else(no_zone)?;
        let today = now.to_zoned(zone.clone()).date();
        let date = if day == "today" {
            today
        } else {
            today.tomorrow().map_err(|_| no_moment())?
        };
        return shown_once(date.to_datetime(time), zone);
    }
    let pieces = Pieces::parse(text).map_err(|_| no_moment())?;
    let time = pieces.time().ok_or_else(|| {
        Error::new(format!(
            "{shown} has no time of day: write '{} 20:00'",
            pieces.date()
        ))
    })?;
    if pieces.offset().is_some() {
        // `Timestamp` ignores a zone in brackets; `Zoned` checks that it agrees with the offset.
        if pieces.time_zone_annotation().is_none() {
            return text
                .parse::<Timestamp>()
                .map(SystemTime::from)
                .map_err(|_| no_moment());
        }
        return DateTimeParser::new()
            .parse_zoned_with(&TimeZoneDatabase::bundled(), text)
            .map(|zoned| zoned.timestamp().into())
            .map_err(other);
    }
    let named = pieces
        .to_time_zone_with(&TimeZoneDatabase::bundled())
        .map_err(other)?;
    shown_once(
        pieces.date().to_datetime(time),
        named.as_ref().or(zone).ok_or_else(no_zone)?,
    )
}

/// The only moment at which clocks in this zone show this time; fails if there are none or two.
fn shown_once(shown: DateTime, zone: &TimeZone) -> Result<SystemTime, Error> {
    let out_of_range = |error: jiff::Error| Error::new(format!("{shown}: {error}"));
    let (before, after, why) = match zone.to_ambiguous_timestamp(shown).offset() {
        AmbiguousOffset::Unambiguous { offset } => {
            return offset
                .to_timestamp(shown)
                .map(SystemTime::from)
                .map_err(out_of_range);
        }
        AmbiguousOffset::Gap { before, after } => (
            before,
            after,
            "does not exist: clocks are put forward over it",
        ),
        AmbiguousOffset::Fold { before, after } => {
            (before, after, "exists twice: clocks are put back over it")
        }
    };
    let name = zone.iana_name().unwrap_or("this zone");
    let mut candidates = [before, after].map(|offset| offset.to_timestamp(shown));
    candidates.sort_by_key(|candidate| candidate.as_ref().ok().copied());
    let [first, second] = candidates;
    let (first, second) = (first.map_err(out_of_range)?, second.map_err(out_of_range)?);
    Err(Error::new(format!(
        "{shown} {why} in {name}; say which you mean: {} or {}",
        first.display_with_offset(zone.to_offset(first)),
        second.display_with_offset(zone.to_offset(second)),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

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

    const NOON: u64 = 1_796_126_400; // 2026-12-01T12:00:00Z

    fn at(text: &str, name: Option<&str>) -> Result<u64, String> {
        let zone = name.map(|name| zone(name).expect("a zone"));
        // 00:30 on December 1st in Shanghai.
        let now = "2026-11-30T16:30:00Z".parse().expect("a timestamp");
        let moment =
            moment(text, zone.as_ref(), now, Wording::Flags).map_err(|error| error.to_string())?;
        Ok(moment
            .duration_since(SystemTime::UNIX_EPOCH)
            .expect("after 1970")
            .as_secs())
    }

    #[test]
    fn moment_accepts_many_notations() {
        for text in [
            "1796126400000",
            "2026-12-01T12:00:00Z",
            "2026-12-01T20:00:00+08:00",
            "2026-12-01 20:00+08",
            "2026-12-01T20:00:00[Asia/Shanghai]",
            "2026-12-01T20:00:00+08:00[Asia/Shanghai]",
        ] {
            assert_eq!(at(text, None), Ok(NOON), "{text}");
            assert_eq!(
                at(text, Some("America/New_York")),
                Ok(NOON),
                "{text} carries its own zone"
            );
        }
        let now = "2026-11-30T16:30:00Z"
            .parse::<Timestamp>()
            .expect("a timestamp");
        assert_eq!(at("now", None), Ok(now.as_second().unsigned_abs()));
        for text in [
            "2026-12-01 20:00",
            "2026-12-01T20:00:00",
            "today 20:00",
            "tomorrow 20:00",
        ] {
            let day = if text.starts_with("tomorrow") {
                86_400
            } else {
                0
            };
            assert_eq!(at(text, Some("Asia/Shanghai")), Ok(NOON + day), "{text}");
            assert!(
                at(text, None).is_err_and(|reason| reason.contains("--tz")),
                "{text}"
            );
        }
    }

    #[test]
    fn skipped_and_repeated_times_are_refused_with_both_candidates() {
        for text in ["2027-03-14 02:30", "2027-03-14T02:30:00[America/New_York]"] {
            let reason = at(text, Some("America/New_York")).expect_err("a gap");
            assert!(reason.contains("does not exist"), "{reason}");
            assert!(
                reason.contains("2027-03-14T01:30:00-05:00 or 2027-03-14T03:30:00-04:00"),
                "{reason}"
            );
        }
        for text in ["2026-10-25 02:30", "2026-10-25T02:30[Europe/Berlin]"] {
            let reason = at(text, Some("Europe/Berlin")).expect_err("a fold");
            assert!(reason.contains("exists twice"), "{reason}");
            assert!(
                reason.contains("2026-10-25T02:30:00+02:00 or 2026-10-25T02:30:00+01:00"),
                "{reason}"
            );
        }
        // A user can paste each of the two candidates.
        assert_eq!(
            at("2026-10-25T02:30:00+02:00", None).map(|first| first + 3_600),
            at("2026-10-25T02:30:00+01:00", None)
        );
        assert!(at("2026-10-25T02:30:00+02:00[Europe/Berlin]", None).is_ok());
    }

    #[test]
    fn moment_refuses_other_text_with_a_remedy() {
        for (text, word) in [
            ("soon", "no moment"),
            ("1796126400", "milliseconds"),
            ("20261201", "milliseconds"),
            ("202612012000", "milliseconds"),
            ("20261201200000", "milliseconds"),
            ("0000000000001", "milliseconds"),
            ("99999999999999999999999", "milliseconds"),
            ("tomorrow", "no moment"),
            ("tomorrow 25:00", "no moment"),
            ("2026-02-30 20:00", "no moment"),
            ("2026-12-01", "time of day"),
            ("2026-12-01T20:00[Mars/Olympus]", "Mars"),
            ("2026-12-01T20:00:00+01:00[Asia/Shanghai]", "+01:00"),
        ] {
            let reason = at(text, Some("Asia/Shanghai")).expect_err(text);
            assert!(reason.contains(word), "{text}: {reason}");
        }
        assert!(zone("Nowhere").is_err_and(|error| error.reason().contains("Asia/Shanghai")));
    }

    #[test]
    fn missing_zone_is_named_as_a_flag_or_a_field() {
        let now = Timestamp::UNIX_EPOCH;
        let reason = |text, wording| {
            let error = moment(text, None, now, wording).expect_err("no zone");
            error.to_string()
        };
        let (flags, fields) = (Wording::Flags, Wording::Fields);
        assert!(reason("today 20:00", flags).contains("add --tz, such as --tz Asia/Shanghai"));
        assert!(
            reason("today 20:00", fields).contains("add tz, such as \"tz\": \"Asia/Shanghai\"")
        );
        assert!(reason("soon", flags).contains("or with --tz '2026-12-01 20:00'"));
        assert!(reason("soon", fields).contains("or with tz '2026-12-01 20:00'"));
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

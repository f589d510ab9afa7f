//! Parses moments.

use std::time::{Duration, SystemTime};

use jiff::civil::{DateTime, Time};
use jiff::fmt::temporal::{DateTimeParser, Pieces};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{Span, Timestamp};

use crate::error::quoted;
use crate::{Error, Wording, time};

/// Reads a moment in one of these notations:
///
/// - `now`, `10m ago`, `in 10m`, or Unix milliseconds;
/// - a time with its offset or zone: `2026-12-01T20:00:00+08:00`,
///   `2026-12-01T20:00:00[Asia/Shanghai]`;
/// - a time of clocks in `zone`: `2026-12-01 20:00`, `today 20:00`, `tomorrow 9:00`,
///   `yesterday 20:00`.
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
            "{shown} is no moment: write now, 10m ago, 2026-12-01T20:00:00+08:00, 2026-12-01T20:00:00[Asia/Shanghai], \
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
    if let Some(time) = distant(text, now) {
        return time;
    }
    if let Some((day, time)) = text.split_once(' ')
        && let Some(days) = days_from_today(day)
    {
        let time = time_of_day(time).ok_or_else(no_moment)?;
        let zone = zone.ok_or_else(no_zone)?;
        let today = now.to_zoned(zone.clone()).date();
        let date = today.checked_add(days).map_err(|_| no_moment())?;
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

/// A moment at a distance from now: `10m ago`, `in 10m`. `None` if the text is neither.
fn distant(text: &str, now: Timestamp) -> Option<Result<SystemTime, Error>> {
    let (length, is_past) = match text.strip_suffix(" ago") {
        Some(length) => (length, true),
        None => (text.strip_prefix("in ")?, false),
    };
    Some(time::delay(length.trim()).and_then(|length| {
        let moved = match is_past {
            true => now.checked_sub(length),
            false => now.checked_add(length),
        };
        let moved = moved.map_err(|error| Error::new(format!("{}: {error}", quoted(text))))?;
        Ok(moved.into())
    }))
}

fn days_from_today(word: &str) -> Option<Span> {
    let days = match word {
        "yesterday" => -1,
        "today" => 0,
        "tomorrow" => 1,
        _ => return None,
    };
    Some(Span::new().days(days))
}

/// `20:00`, or `9:00` with one digit.
fn time_of_day(text: &str) -> Option<Time> {
    let text = text.trim();
    let has_one_digit = text.split(':').next().is_some_and(|hour| hour.len() == 1);
    let zero = if has_one_digit { "0" } else { "" };
    format!("{zero}{text}").parse().ok()
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

    const NOON: u64 = 1_796_126_400; // 2026-12-01T12:00:00Z

    fn at(text: &str, name: Option<&str>) -> Result<u64, String> {
        let zone = name.map(|name| time::zone(name).expect("a zone"));
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
    fn moments_are_written_as_people_say_them() {
        let now = 1_796_056_200; // 2026-11-30T16:30:00Z
        for (text, seconds) in [
            ("10m ago", now - 600),
            ("1h 30m ago", now - 5_400),
            ("in 2 days", now + 172_800),
            ("today 9:05", NOON - 39_300),
            ("tomorrow 9:00", NOON + 46_800),
            ("tomorrow 9", NOON + 46_800),
            ("yesterday 20:00", NOON - 86_400),
        ] {
            assert_eq!(at(text, Some("Asia/Shanghai")), Ok(seconds), "{text}");
        }
        assert_eq!(at("10m ago", None), Ok(now - 600), "it needs no zone");
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
            ("soon ago", "no delay"),
            ("-5m ago", "negative"),
            ("in soon", "no delay"),
            ("2026-02-30 20:00", "no moment"),
            ("2026-12-01", "time of day"),
            ("2026-12-01T20:00[Mars/Olympus]", "Mars"),
            ("2026-12-01T20:00:00+01:00[Asia/Shanghai]", "+01:00"),
        ] {
            let reason = at(text, Some("Asia/Shanghai")).expect_err(text);
            assert!(reason.contains(word), "{text}: {reason}");
        }
        assert!(time::zone("Nowhere").is_err_and(|error| error.reason().contains("Asia/Shanghai")));
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
}

//! Checks the readers of delays, moments and business hours.

use std::time::Duration;

use dueq::{BusinessHours, Due};
use jiff::civil::DateTime;
use jiff::fmt::temporal::{Pieces, PiecesOffset};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp};

use super::{check_error, check_reason};
use crate::{Wording, time};

/// The bytes are a delay as in `--delay`. An accepted delay equals the written one, and has a fixed
/// length. A refusal gives its reason.
pub fn delay(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let read = time::delay(text);
    if let Some(expected) = plain_delay(text) {
        assert_eq!(read, Ok(expected), "{text:?}");
    }
    match read {
        Ok(delay) => {
            assert!(!text.trim().is_empty());
            assert!(
                text.contains(|c: char| c.is_ascii_digit()),
                "{text:?} is {delay:?}"
            );
            let span: Span = text.parse().expect("an accepted delay is a span");
            assert_eq!(
                (span.get_years(), span.get_months()),
                (0, 0),
                "{text:?} has no fixed length"
            );
            let again = format!("PT{}.{:09}S", delay.as_secs(), delay.subsec_nanos());
            // The format can write this many seconds. Hours and minutes together may exceed that.
            if delay.as_secs() <= 631_107_417_600 {
                assert_eq!(time::delay(&again), Ok(delay), "{text:?}");
            }
            let _ = Due::from(delay);
        }
        Err(error) => check_error(&error),
    }
}

/// Reads a number of at most six digits with one unit, independently of the parser under test.
fn plain_delay(text: &str) -> Option<Duration> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = &text[..text.len() - unit.len()];
    let number: u32 = Some(number)
        .filter(|number| number.len() <= 6)?
        .parse()
        .ok()?;
    let ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    Some(Duration::from_millis(ms * u64::from(number)))
}

/// 2026-10-24T22:00:00Z, shortly before clocks go back in Europe.
const NOW: i64 = 1_792_879_200;

/// The bytes are a moment as in `--at`; the first byte selects the zone of `--tz`. Clocks in the
/// zone show the written time at the accepted moment, and at no other. A refusal gives its reason.
pub fn moment(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(rest) else {
        return;
    };
    let name = [
        "Asia/Shanghai",
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "UTC",
    ];
    let zone = name
        .get(usize::from(which % 8))
        .map(|name| time::zone(name).expect("a zone"));
    let now = Timestamp::from_second(NOW).expect("a moment");
    match time::moment(text, zone.as_ref(), now, Wording::Flags) {
        Ok(at) => {
            let at = Timestamp::try_from(at).expect("a timestamp");
            if text == "now" {
                assert_eq!(at, now);
                return;
            }
            let apart = [text.strip_suffix(" ago"), text.strip_prefix("in ")];
            if let Some(length) = apart.into_iter().flatten().next() {
                let apart = at.duration_since(now).unsigned_abs();
                assert_eq!(time::delay(length.trim()), Ok(apart), "{text:?}");
                assert_eq!(at < now, text.ends_with(" ago") && !apart.is_zero());
                return;
            }
            if let Some((day, clock)) = text
                .split_once(' ')
                .filter(|(day, _)| matches!(*day, "yesterday" | "today" | "tomorrow"))
            {
                let zone = zone.expect("a day without a date needs a zone");
                let today = now.to_zoned(zone.clone()).date();
                let date = match day {
                    "yesterday" => today.yesterday().expect("a day"),
                    "today" => today,
                    _ => today.tomorrow().expect("a day"),
                };
                let clock = clock.trim();
                let is_short = clock
                    .find(|c: char| !c.is_ascii_digit())
                    .unwrap_or(clock.len())
                    == 1;
                let clock = format!("{}{clock}", if is_short { "0" } else { "" });
                let time = clock.parse().expect("a time of day");
                check_shown_once(at, &zone, date.to_datetime(time));
                return;
            }
            if let Ok(ms) = text.parse::<i64>() {
                assert_eq!(at.as_millisecond(), ms, "{text:?}");
                return;
            }
            let pieces = Pieces::parse(text).expect("an accepted moment has pieces");
            let written = pieces
                .date()
                .to_datetime(pieces.time().expect("a time of day"));
            let named = pieces
                .to_time_zone_with(&jiff::tz::TimeZoneDatabase::bundled())
                .ok()
                .flatten();
            match (pieces.offset(), named) {
                // `Z` alone fixes the moment; a zone in brackets then only says in which zone to
                // show it.
                (Some(PiecesOffset::Zulu), _) => {
                    assert_eq!(
                        TimeZone::UTC.to_timestamp(written).ok(),
                        Some(at),
                        "{text:?}"
                    )
                }
                (Some(_), Some(zone)) => {
                    let (written_offset, offset) = (
                        pieces.to_numeric_offset().expect("an offset"),
                        zone.to_offset(at),
                    );
                    // Old offsets have seconds, which a notation may omit.
                    assert!(
                        (written_offset.seconds() - offset.seconds()).abs() < 60,
                        "{text:?}: zone and offset disagree"
                    );
                    assert_eq!(offset.to_timestamp(written).ok(), Some(at), "{text:?}");
                }
                (Some(_), None) => {
                    let offset = pieces.to_numeric_offset().expect("an offset");
                    assert_eq!(offset.to_timestamp(written).ok(), Some(at), "{text:?}");
                }
                (None, named) => check_shown_once(at, &named.or(zone).expect("a zone"), written),
            }
        }
        Err(error) => check_error(&error),
    }
    if let Err(error) = time::zone(text) {
        check_error(&error);
    }
}

/// The bytes are business hours as in `--within`. Accepted hours open within 15 days of any
/// instant; upper and lower case are equivalent. A refusal gives its reason.
pub fn hours(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let parse = |text: &str| BusinessHours::parse(text, "Europe/Berlin");
    match parse(text) {
        Ok(hours) => {
            for from in [0, NOW.unsigned_abs() * 1_000, 1_806_191_999_999] {
                let open = hours.next_open(from).expect("an opening");
                assert!((from..=from + 15 * 86_400_000).contains(&open), "{text:?}");
                assert!(hours.is_open(open) && (open == from || !hours.is_open(open - 1)));
            }
            assert_eq!(parse(&text.to_uppercase()).ok(), Some(hours), "{text:?}");
        }
        Err(error) => check_reason(&error.to_string(), text),
    }
    if let Err(error) = BusinessHours::parse("Mon 09:00-18:00", text) {
        check_reason(&error.to_string(), text);
    }
}

/// Looks at three hours before and after `at`, because no zone puts its clocks back by more.
fn check_shown_once(at: Timestamp, zone: &TimeZone, written: DateTime) {
    assert_eq!(zone.to_datetime(at), written, "{at} in {zone:?}");
    for minutes in (-180..=180).step_by(30).filter(|minutes| *minutes != 0) {
        if let Ok(other) = at.checked_add(SignedDuration::from_mins(minutes)) {
            assert_ne!(
                zone.to_datetime(other),
                written,
                "{written} is shown at {at}, and at {other} too"
            );
        }
    }
}

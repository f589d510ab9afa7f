//! The fires of a pattern by a search minute by minute: it asks the zone for nothing but the offset
//! at an instant.
//!
//! As Vixie's cron and the Open Cron Pattern Specification: a fixed time in a gap fires at the first
//! instant after it, and one that occurs twice at its first. Others fire whenever the clock shows
//! them.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

use super::pattern::{Local, Pattern};

const MINUTE_S: i64 = 60;
/// Clocks go back by less.
const BEFORE_MINUTES: i64 = 26 * 60;

/// What the clock of a zone shows, minute by minute.
pub(super) struct Minutes {
    /// The first minute whose fires are known.
    from_s: i64,
    until_s: i64,
    minutes: Vec<Minute>,
}

struct Minute {
    at_s: i64,
    /// Skipped minutes, then the one that the clock shows; whether it is shown for the first time.
    shown: Vec<(Local, bool)>,
}

impl Minutes {
    /// Of the instants `[from, until)`, whole minutes.
    pub(super) fn new(zone: &TimeZone, from_s: i64, until_s: i64) -> Self {
        let mut minutes = Vec::new();
        let shown = |at_s: i64| {
            let at = Timestamp::from_second(at_s).unwrap_or_default();
            (at_s + i64::from(zone.to_offset(at).seconds())).div_euclid(MINUTE_S)
        };
        let mut at_s = from_s - BEFORE_MINUTES * MINUTE_S;
        let (mut last, mut latest) = (shown(at_s - MINUTE_S), i64::MIN);
        while at_s < until_s {
            let number = shown(at_s);
            if at_s >= from_s {
                let skipped = (last + 1..number).map(|number| (local(number), true));
                let skipped = skipped.filter(|_| number > latest);
                let now = (local(number), number > latest);
                let shown = skipped.chain([now]).collect();
                minutes.push(Minute { at_s, shown });
            }
            latest = latest.max(number);
            last = number;
            at_s += MINUTE_S;
        }
        Self {
            from_s,
            until_s,
            minutes,
        }
    }

    pub(super) fn begin_ms(&self) -> u64 {
        self.from_s.unsigned_abs() * 1_000
    }

    pub(super) fn end_ms(&self) -> u64 {
        self.until_s.unsigned_abs() * 1_000
    }

    /// The fires in ms.
    pub(super) fn fires(&self, pattern: &Pattern) -> Vec<u64> {
        let is_fixed = pattern.is_fixed();
        let fires = |minute: &&Minute| match is_fixed {
            true => minute
                .shown
                .iter()
                .any(|(local, is_first)| *is_first && pattern.matches(*local)),
            false => minute
                .shown
                .last()
                .is_some_and(|(local, _)| pattern.matches(*local)),
        };
        let fires = self.minutes.iter().filter(fires);
        fires
            .map(|minute| minute.at_s.unsigned_abs() * 1_000)
            .collect()
    }
}

fn local(number: i64) -> Local {
    let at = Timestamp::from_second(number * MINUTE_S).unwrap_or_default();
    let time: DateTime = Offset::UTC.to_datetime(at);
    Local {
        month: time.month().unsigned_abs(),
        day: time.day().unsigned_abs(),
        weekday: time.weekday().to_sunday_zero_offset().unsigned_abs(),
        hour: time.hour().unsigned_abs(),
        minute: time.minute().unsigned_abs(),
    }
}

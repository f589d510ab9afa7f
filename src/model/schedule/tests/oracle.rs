//! Compares the fires of random patterns with a search of every minute. The search asks the time
//! zone only for the offset at an instant.
//!
//! As Vixie's cron and the Open Cron Pattern Specification: a fixed time in a gap fires at the
//! first instant after it, and one that occurs twice at its first. Patterns without fixed times
//! fire whenever the clock shows a matching time.

use fastrand::Rng;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

use super::pattern::{Local, Pattern};
use crate::model::schedule::Schedule;
use crate::model::zone;

const MINUTE_S: i64 = 60;
const DAY_S: i64 = 86_400;
/// The years 2015 to 2030, in Unix seconds.
const TIMES_S: std::ops::Range<i64> = 1_420_070_400..1_893_456_000;
/// Longer than any clock goes back, in minutes.
const BEFORE_MINUTES: i64 = 26 * 60;

/// What the clock of a zone shows, minute by minute.
struct Minutes(Vec<Minute>);

struct Minute {
    at_s: i64,
    /// For each minute, the local times that begin with it: first skipped ones, then the one that
    /// the clock shows. The flag says whether that time is shown for the first time.
    shown: Vec<(Local, bool)>,
}

impl Minutes {
    /// The minutes from `from_s` up to `until_s`, both whole minutes.
    fn new(zone: &TimeZone, from_s: i64, until_s: i64) -> Self {
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
        Self(minutes)
    }

    /// The instants at which the pattern fires, in Unix ms.
    fn fires(&self, pattern: &Pattern) -> Vec<u64> {
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
        let fires = self.0.iter().filter(fires);
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

fn schedule(pattern: &Pattern) -> Schedule {
    let schedule = Schedule::cron(&pattern.text).expect("a pattern");
    schedule.zone(pattern.zone)
}

#[test]
fn fires_match_a_search_of_every_minute() {
    let mut rng = Rng::with_seed(23);
    let (mut changes, mut found) = (0, 0);
    for _ in 0..300 {
        let pattern = Pattern::random(&mut rng);
        let zone = zone::zone(pattern.zone, "a cron").expect("a zone");
        // A search covers two days: around a clock change, or anywhere.
        let day = Timestamp::from_second(rng.i64(TIMES_S)).expect("a time");
        let change = zone.following(day).next();
        changes += usize::from(change.is_some());
        let middle = change.map_or(day, |change| change.timestamp()).as_second();
        let middle = middle.div_euclid(MINUTE_S) * MINUTE_S;
        let (from, until) = (middle - DAY_S, middle + DAY_S);
        let after_ms = from.unsigned_abs() * 1_000 - 1;
        let fires = schedule(&pattern).fires(after_ms).expect("fires");
        let fires: Vec<_> = fires
            .map(|fire| fire.nominal_ms)
            .take_while(|ms| *ms < until.unsigned_abs() * 1_000)
            .collect();
        let expected = Minutes::new(&zone, from, until).fires(&pattern);
        assert_eq!(fires, expected, "{pattern:?} around {middle}");
        found += fires.len();
    }
    assert!(changes > 150, "only {changes} clock changes");
    assert!(found > 1_000, "only {found} fires");
}

#[test]
fn fires_from_any_instant_are_the_rest_of_the_fires() {
    let mut rng = Rng::with_seed(24);
    for _ in 0..100 {
        let pattern = Pattern::random(&mut rng);
        let schedule = schedule(&pattern);
        let start_ms = rng.i64(TIMES_S).unsigned_abs() * 1_000;
        let all: Vec<_> = schedule.fires(start_ms).expect("fires").take(100).collect();
        for _ in 0..20 {
            let at = rng.usize(..all.len() - 1);
            let after = rng.u64(all[at].nominal_ms..all[at + 1].nominal_ms);
            let next = schedule.fires(after).expect("fires").next();
            assert_eq!(next, Some(all[at + 1]), "{pattern:?} after {after}");
        }
    }
}

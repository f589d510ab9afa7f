//! Random patterns and zones, against a search minute by minute.

use std::collections::BTreeSet;

use fastrand::Rng;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use crate::model::schedule::Schedule;
use crate::model::zone;

const ZONES: [&str; 10] = [
    "Europe/Paris",
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "Africa/Cairo",
    "America/Sao_Paulo",
    "Africa/Casablanca",
    "Asia/Kathmandu",
    "America/Nuuk",
    "UTC",
];

/// A field of a pattern: its text and its values.
struct Field {
    text: String,
    values: BTreeSet<i8>,
    is_open: bool,
}

fn field(rng: &mut Rng, least: i8, most: i8) -> Field {
    let of = |text: String, values: Vec<i8>| Field {
        is_open: text.contains(['*', '/']),
        text,
        values: values.into_iter().collect(),
    };
    match rng.u8(0..5) {
        0 => of("*".to_owned(), (least..=most).collect()),
        1 => {
            let step = rng.usize(2..=usize::from(most.unsigned_abs()) / 2);
            of(format!("*/{step}"), (least..=most).step_by(step).collect())
        }
        2 => {
            let (a, b) = (rng.i8(least..=most), rng.i8(least..=most));
            let (from, to) = (a.min(b), a.max(b));
            of(format!("{from}-{to}"), (from..=to).collect())
        }
        3 => {
            let values: Vec<_> = (0..3).map(|_| rng.i8(least..=most)).collect();
            let texts: Vec<_> = values.iter().map(i8::to_string).collect();
            of(texts.join(","), values)
        }
        _ => {
            let value = rng.i8(least..=most);
            of(value.to_string(), vec![value])
        }
    }
}

/// The fires of a pattern of minutes and hours in `(after, until]`, minute by minute.
fn expected(
    minute: &Field,
    hour: &Field,
    zone: &TimeZone,
    after: Timestamp,
    until: Timestamp,
) -> BTreeSet<i64> {
    let is_match =
        |at: DateTime| minute.values.contains(&at.minute()) && hour.values.contains(&at.hour());
    let mut fires = BTreeSet::new();
    if minute.is_open || hour.is_open {
        // Whenever the local time matches.
        let mut at = after.as_second() / 60 * 60 - 60;
        while at <= until.as_second() {
            let local = zone.to_datetime(Timestamp::from_second(at).expect("a time"));
            if is_match(local) {
                fires.insert(at);
            }
            at += 60;
        }
    } else {
        // Each local time once: the first of two; of none, the first minute after the gap.
        let mut local = zone.to_datetime(after) - 2.days();
        local = local
            .with()
            .second(0)
            .subsec_nanosecond(0)
            .build()
            .expect("a time");
        let end = zone.to_datetime(until) + 2.days();
        while local < end {
            if is_match(local) {
                let mut real = local;
                while zone.to_ambiguous_timestamp(real).offset().is_gap() {
                    real += 1.minute();
                }
                let first = zone.to_ambiguous_timestamp(real).earlier().expect("a time");
                fires.insert(first.as_second());
            }
            local += 1.minute();
        }
    }
    fires.retain(|at| *at > after.as_second() && *at <= until.as_second());
    fires
}

trait IsGap {
    fn is_gap(&self) -> bool;
}

impl IsGap for jiff::tz::AmbiguousOffset {
    fn is_gap(&self) -> bool {
        matches!(self, Self::Gap { .. })
    }
}

#[test]
fn fires_equal_a_search_minute_by_minute() {
    let mut rng = Rng::with_seed(23);
    let mut changes = 0;
    for round in 0..300 {
        let (minute, hour) = (field(&mut rng, 0, 59), field(&mut rng, 0, 23));
        let name = ZONES[round % ZONES.len()];
        let zone = zone::zone(name, "a cron").expect("a zone");
        let pattern = format!("{} {} * * *", minute.text, hour.text);
        let schedule = Schedule::cron(&pattern).expect("a pattern").zone(name);
        // A day around a clock change of 2015 to 2030, or any day.
        let day = Timestamp::from_second(rng.i64(1_420_070_400..1_893_456_000)).expect("a time");
        let change = zone.following(day).next().map(|change| change.timestamp());
        changes += usize::from(change.is_some());
        let middle = change.unwrap_or(day);
        let after = middle - jiff::SignedDuration::from_secs(rng.i64(0..86_400));
        let until = middle + jiff::SignedDuration::from_secs(86_400);
        let after_ms = u64::try_from(after.as_second() * 1_000).expect("a time");
        let fires = schedule.fires(after_ms).expect("fires");
        let until_ms = u64::try_from(until.as_second() * 1_000).expect("a time");
        let fires: Vec<_> = fires
            .map(|fire| fire.nominal_ms)
            .take_while(|ms| *ms <= until_ms)
            .map(|ms| i64::try_from(ms / 1_000).expect("a time"))
            .collect();
        let expected: Vec<_> = expected(&minute, &hour, &zone, after, until)
            .into_iter()
            .collect();
        assert_eq!(fires, expected, "{pattern} in {name} after {after}");
    }
    assert!(changes > 150, "only {changes} clock changes");
}

#[test]
fn fires_from_any_instant_are_the_rest_of_the_fires() {
    let mut rng = Rng::with_seed(24);
    for _ in 0..100 {
        let (minute, hour) = (field(&mut rng, 0, 59), field(&mut rng, 0, 23));
        let name = ZONES[rng.usize(..ZONES.len())];
        let pattern = format!("{} {} * * *", minute.text, hour.text);
        let schedule = Schedule::cron(&pattern).expect("a pattern").zone(name);
        let start = rng.u64(1_420_070_400_000..1_893_456_000_000);
        let all: Vec<_> = schedule.fires(start).expect("fires").take(300).collect();
        for _ in 0..20 {
            let at = rng.usize(..all.len() - 1);
            let after = rng.u64(all[at].nominal_ms..all[at + 1].nominal_ms);
            let next = schedule.fires(after).expect("fires").next();
            assert_eq!(next, Some(all[at + 1]), "{pattern} in {name} after {after}");
        }
    }
}

//! A wall time has one meaning around every clock change, in `--at`, in `--within`, in a schedule,
//! in its preview, and in printed times.

use std::time::Duration;

use dueq::BusinessHours;
use dueq::schedules::Schedule;
use dueq_input::{ClockChanges, Wording};
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

const ZONES: [&str; 27] = [
    "Africa/Cairo",
    "Africa/Casablanca",
    "Africa/Juba",
    "America/Caracas",
    "America/Godthab",
    "America/Havana",
    "America/New_York",
    "America/Santiago",
    "America/Sao_Paulo",
    "America/Scoresbysund",
    "America/St_Johns",
    "America/Vancouver",
    "Antarctica/Troll",
    "Asia/Almaty",
    "Asia/Amman",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Asia/Pyongyang",
    "Asia/Tehran",
    "Atlantic/Azores",
    "Australia/Lord_Howe",
    "Europe/Dublin",
    "Europe/Istanbul",
    "Europe/Paris",
    "Europe/Volgograd",
    "Pacific/Apia",
    "Pacific/Chatham",
];
/// The years that are tested unless `DUEQ_YEARS` names others, such as `2008-2037`: one with an
/// unusual change in Apia, and two future ones.
const YEARS: [i16; 3] = [2011, 2026, 2027];

/// A time zone, in the type that each part of the program uses.
struct Zone {
    name: &'static str,
    rules: TimeZone,
}

impl Zone {
    /// How `--at` answers: with the moment, or with a refusal.
    fn at(&self, shown: DateTime) -> Result<Timestamp, String> {
        let now = Timestamp::UNIX_EPOCH;
        dueq_input::moment(&shown.to_string(), Some(&self.rules), now, Wording::Flags)
            .map(|at| Timestamp::try_from(at).expect("a time"))
            .map_err(|error| error.to_string())
    }

    /// The fire of a schedule at this wall time on the day of `near`, and the preview's remark
    /// about it.
    fn fire(&self, shown: DateTime, near: Timestamp) -> (Timestamp, String) {
        let (second, minute, hour) = (shown.second(), shown.minute(), shown.hour());
        let pattern = format!(
            "{second} {minute} {hour} {} {} *",
            shown.day(),
            shown.month()
        );
        let schedule = Schedule::cron(&pattern).expect("a pattern").zone(self.name);
        let after = near - SignedDuration::from_hours(30);
        let mut fires = schedule.name("s").fires(unix_ms(after)).expect("fires");
        let fire = timestamp(fires.next().expect("a fire").nominal_ms);
        let changes = ClockChanges::new(self.rules.clone(), Some(&pattern));
        (fire, changes.remark(after, fire))
    }

    /// Business hours from one wall time to another on each day.
    fn hours(&self, from: DateTime, to: DateTime) -> BusinessHours {
        let [from, to] = [from, to].map(|shown| shown.strftime("%H:%M").to_string());
        let to = if to == "00:00" { "24:00" } else { &to };
        BusinessHours::parse(&format!("Mon-Sun {from}-{to}"), self.name).expect("hours")
    }
}

fn unix_ms(at: Timestamp) -> u64 {
    u64::try_from(at.as_millisecond()).expect("after 1970")
}

fn timestamp(ms: u64) -> Timestamp {
    let ms = i64::try_from(ms).expect("a time");
    Timestamp::from_millisecond(ms).expect("a time")
}

fn minutes(count: i64) -> SignedDuration {
    SignedDuration::from_mins(count)
}

/// Checks a moment near a clock change. Its printed form is read back as that moment; or it is
/// refused with both moments that it could mean, and then schedules and hours take the first.
fn check_shown(zone: &Zone, at: Timestamp, overlap: Option<(Timestamp, SignedDuration)>) {
    let shown = zone.rules.to_datetime(at);
    let passes = overlap.and_then(|(change, length)| {
        let first = if at < change { at } else { at - length };
        (first < change && first + length >= change).then_some((first, first + length))
    });
    let first = passes.map_or(at, |(first, _)| first);
    let what = format!("{shown} in {}", zone.name);
    match (zone.at(shown), passes) {
        (Ok(moment), None) => assert_eq!(moment, at, "--at {what}"),
        (Err(refusal), Some((first, second))) => {
            assert!(refusal.contains("exists twice"), "{what}: {refusal}");
            for pass in [first, second] {
                let candidate = pass
                    .display_with_offset(zone.rules.to_offset(pass))
                    .to_string();
                assert!(refusal.contains(&candidate), "{what}: {refusal}");
            }
        }
        other => panic!("--at {what}: {other:?}"),
    }
    let (fire, remark) = zone.fire(shown, at);
    assert_eq!(fire, first, "schedule at {what}");
    assert_eq!(
        remark.contains("twice"),
        passes.is_some(),
        "{what}: {remark:?}"
    );
    let hours = zone.hours(shown, shown + minutes(1));
    assert!(hours.is_open(unix_ms(at)), "--within at {what}");
    let before = unix_ms(first - minutes(90));
    let opens = hours.next_open(before).expect("an opening");
    assert_eq!(timestamp(opens), first, "--within {what}");
}

/// Checks a wall time that a clock change skips: `--at` refuses it, a schedule fires right after
/// the gap, and hours that begin at it open there.
fn check_skipped(zone: &Zone, change: Timestamp, shown: DateTime, [before, end]: [DateTime; 2]) {
    let what = format!("{shown} in {}", zone.name);
    let refusal = zone.at(shown).expect_err(&what);
    assert!(refusal.contains("does not exist"), "{what}: {refusal}");
    let (fire, remark) = zone.fire(shown, change);
    assert_eq!(fire, change, "schedule at {what}");
    assert!(remark.contains("does not exist"), "{what}: {remark:?}");
    // Hours apply to each day: if a whole day is skipped, there are none on it.
    if end.duration_since(before) < SignedDuration::from_hours(12) {
        let hours = zone.hours(shown, end + minutes(60));
        let opens = hours.next_open(unix_ms(change - minutes(10)));
        assert_eq!(
            timestamp(opens.expect("an opening")),
            change,
            "--within {what}"
        );
    }
}

/// Checks the wall times around a change; returns whether it skips or repeats some.
fn check_change(zone: &Zone, change: Timestamp) -> bool {
    let before = zone.rules.to_offset(change - Duration::from_secs(1));
    let after = zone.rules.to_offset(change);
    let length = SignedDuration::from_secs(i64::from(after.seconds() - before.seconds()));
    let overlap = length.is_negative().then_some((change, -length));
    let near = [-120, -61, -60, -31, -30, -1, 0, 1, 29, 30, 59, 60, 61, 120];
    for at in near.map(|count| change + minutes(count)) {
        check_shown(zone, at, overlap);
    }
    if length.is_positive() {
        let (start, end) = (before.to_datetime(change), after.to_datetime(change));
        for shown in [start, start + minutes(17), end - minutes(1)] {
            check_skipped(zone, change, shown, [start, end]);
        }
    }
    !length.is_zero()
}

#[test]
fn wall_time_has_one_meaning_around_clock_changes() {
    let years: Vec<i16> = match std::env::var("DUEQ_YEARS") {
        Err(_) => YEARS.to_vec(),
        Ok(text) => {
            let (first, last) = text.split_once('-').expect("FIRST-LAST");
            (first.parse().expect("a year")..=last.parse().expect("a year")).collect()
        }
    };
    let (mut shifts, mut changes) = (0, 0);
    for name in ZONES {
        let rules = dueq_input::zone(name).expect("a zone");
        let zone = Zone { name, rules };
        for year in &years {
            let [from, until] = [*year, year + 1].map(|year| {
                let start =
                    jiff::civil::date(year, 1, 1).to_datetime(jiff::civil::Time::midnight());
                Offset::UTC.to_timestamp(start).expect("a time")
            });
            for change in zone.rules.following(from) {
                if change.timestamp() >= until {
                    break;
                }
                shifts += usize::from(check_change(&zone, change.timestamp()));
                changes += 1;
            }
        }
    }
    println!(
        "{} zones, {} years: {changes} changes, {shifts} of them shifts",
        ZONES.len(),
        years.len()
    );
    assert!(shifts >= 20 * years.len(), "only {shifts} shifts");
}

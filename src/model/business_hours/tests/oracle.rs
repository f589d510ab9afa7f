//! Compares openings with a slow search, minute by minute, around all clock changes of some zones.

use fastrand::Rng;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::model::business_hours::tests::hours;
use crate::model::zone;

const ZONES: [&str; 16] = [
    "Europe/Paris",
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "Africa/Cairo",
    "America/Sao_Paulo",
    "Pacific/Apia",
    "Africa/Casablanca",
    "America/Caracas",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Gaza",
    "Asia/Pyongyang",
    "Asia/Tehran",
    "Europe/Istanbul",
    "UTC",
];
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const MINUTES_OF_WEEK: usize = 7 * 24 * 60;

/// The clock changes of a zone from 2000 to 2030.
fn changes(zone: &str) -> Vec<Timestamp> {
    let (start, end): (Timestamp, Timestamp) = (
        "2000-01-01T00:00Z".parse().expect("a timestamp"),
        "2031-01-01T00:00Z".parse().expect("a timestamp"),
    );
    let zone = zone::zone(zone, "a cron").expect("a zone");
    let changes = zone.following(start).map(|change| change.timestamp());
    changes.take_while(|change| *change < end).collect()
}

/// The text of random hours, and whether each minute of the local week is open. Half of the ranges
/// start or end around the usual times of clock changes.
fn random_hours(rng: &mut Rng) -> (String, Vec<bool>) {
    let mut cuts: Vec<usize> = (0..2 * rng.usize(1..12))
        .map(|_| {
            if rng.bool() {
                rng.usize(0..7) * 1_440 + 5 * rng.usize(0..48)
            } else {
                5 * rng.usize(0..MINUTES_OF_WEEK / 5)
            }
        })
        .collect();
    cuts.sort_unstable();
    cuts.dedup();
    let (mut text, mut open) = (String::new(), vec![false; MINUTES_OF_WEEK]);
    for pair in cuts.chunks_exact(2) {
        let (start, end) = (pair[0], pair[1].min(pair[0] + 1_435));
        open[start..end].fill(true);
        let clock = |minute: usize| format!("{:02}:{:02}", minute / 60 % 24, minute % 60);
        let day = DAYS[start / 1_440];
        text += &format!("{day} {}-{}, ", clock(start), clock(end));
    }
    if text.is_empty() {
        open[..1_440].fill(true);
        text = "Mon 00:00-24:00".to_owned();
    }
    (text, open)
}

/// Whether local clocks show an open minute at this instant.
fn shows_open(zone: &TimeZone, open: &[bool], unix_ms: u64) -> bool {
    let at = Timestamp::from_millisecond(unix_ms.cast_signed()).expect("a timestamp");
    let local = zone.to_datetime(at);
    let day = i64::from(local.weekday().to_monday_zero_offset());
    let minute = (day * 24 + i64::from(local.hour())) * 60 + i64::from(local.minute());
    open[usize::try_from(minute).expect("not negative")]
}

/// The oracle: steps from minute to minute. That is enough, since all offsets and changes are whole
/// minutes since 2000, so hours open at whole minutes only.
fn slow_next_open(zone: &TimeZone, open: &[bool], unix_ms: u64) -> Option<u64> {
    let minutes = (unix_ms / MINUTE + 1..).map(|minute| minute * MINUTE);
    let mut instants = std::iter::once(unix_ms).chain(minutes);
    instants
        .by_ref()
        .take_while(|at| at - unix_ms <= 16 * DAY)
        .find(|at| shows_open(zone, open, *at))
}

#[test]
fn openings_match_a_search_of_every_minute() {
    let seed = 7;
    let mut rng = Rng::with_seed(seed);
    let mut checked = 0;
    for name in ZONES {
        let zone = zone::zone(name, "a cron").expect("a zone");
        let changes = changes(name);
        // A zone without clock changes is checked at random instants.
        let around = changes
            .iter()
            .map(|change| change.as_millisecond().unsigned_abs());
        let elsewhere = (0..50).map(|_| rng.u64(946_684_800_000..1_924_992_000_000));
        let around: Vec<u64> = around.chain(elsewhere).collect();
        for change in around {
            let (text, open) = random_hours(&mut rng);
            let hours = hours(&text, name);
            let near = [0, 1, HOUR, 3 * HOUR, 2 * DAY, 8 * DAY];
            let mut instants: Vec<u64> = near.map(|reach| change - rng.u64(0..=reach)).into();
            instants.extend([change + rng.u64(0..=HOUR), change + rng.u64(0..=3 * HOUR)]);
            for from in instants {
                let case = format!("{text:?} in {name} after {from}, seed {seed}");
                let next = hours.next_open(from).expect("an opening");
                assert_eq!(Some(next), slow_next_open(&zone, &open, from), "{case}");
                assert_eq!(hours.is_open(from), next == from, "{case}");
                assert!(hours.is_open(next), "{case}");
                assert_eq!(hours.next_open(next).expect("an opening"), next, "{case}");
                checked += 1;
            }
        }
    }
    assert!(checked > 8_000, "only {checked} instants");
}

/// The longest waits: weekly hours that a clock change skips, right after they closed.
#[test]
fn skipped_weekly_hours_open_within_15_days() {
    let (mut skipped, mut longest) = (0, 0);
    for name in ZONES {
        let zone = zone::zone(name, "a cron").expect("a zone");
        for change in changes(name) {
            let last = change - SignedDuration::from_millis(1);
            let (gap, end) = (zone.to_datetime(last), zone.to_datetime(change));
            // The skipped minutes, but at most the first 12 hours of them.
            let length = gap
                .until((jiff::Unit::Minute, end))
                .expect("a span")
                .get_minutes();
            if length <= 0 {
                continue;
            }
            let start = zone.to_offset(last).to_datetime(change);
            let end = start + SignedDuration::from_mins(length.min(720));
            let day = DAYS[usize::from(start.weekday().to_monday_zero_offset().unsigned_abs())];
            let text = format!(
                "{day} {}-{}",
                start.strftime("%H:%M"),
                end.strftime("%H:%M")
            );
            let hours = hours(&text, name);
            let change_ms = change.as_millisecond().unsigned_abs();
            for from in [
                change_ms - 7 * DAY,
                change_ms - 7 * DAY + 12 * HOUR,
                change_ms - 1,
            ] {
                let next = hours.next_open(from).expect("an opening");
                assert!(
                    next < change_ms || next > change_ms + 5 * DAY,
                    "{text} in {name}"
                );
                longest = longest.max(next - from);
            }
            skipped += 1;
        }
    }
    assert!(skipped > 300, "only {skipped} gaps");
    assert!(longest > 13 * DAY && longest <= 15 * DAY, "{longest} ms");
}

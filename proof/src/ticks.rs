//! The schedules of a run: their names and specs, and how these change.

use std::time::{Duration, UNIX_EPOCH};

use dueq::Error;
use dueq::schedules::{MissedPolicy, OverlapPolicy, Schedule};

/// The number of schedules.
pub const SCHEDULES: usize = 32;
/// The name of the set to which they belong.
pub const SET: &str = "chaos";
/// The prefix of ids of messages with a window.
pub const WINDOWED: &str = "window-";
const EVERY_MS: [u64; 12] = [
    50, 100, 250, 500, 700, 1_000, 1_500, 2_000, 3_000, 200, 400, 5_000,
];
/// The last schedules are crons: for each the seconds between its fires, which divide a minute, and
/// its zone. Each zone is whole minutes from UTC, so fires are multiples of these seconds there
/// too.
const CRONS: [(u64, &str); 8] = [
    (1, "UTC"),
    (1, "America/St_Johns"),
    (2, "Europe/Paris"),
    (2, "Asia/Kathmandu"),
    (3, "Australia/Lord_Howe"),
    (5, "Pacific/Chatham"),
    (1, "America/Sao_Paulo"),
    (10, "Asia/Kolkata"),
];
/// The most fires of a cron that are listed; few, so that lists run dry between two refills.
pub const LIST: usize = 2;
/// The number of ticks after which a schedule with a limit ends.
const LIMIT: u64 = 3;
/// The anchor from which `every` counts: a time before any run.
const ANCHOR_MS: u64 = 1_000_007;
const WITHIN: Duration = Duration::from_millis(300);
/// The most missed fires of a schedule that become ticks.
const MOST_MISSED: u64 = 5;

/// The name of a schedule.
pub fn name(number: usize) -> String {
    format!("tick-{number}")
}

/// Whether processes remove the schedule. The others exist all the time.
pub fn is_removed(number: usize) -> bool {
    number % 4 == 3
}

/// Whether the schedule ends after some ticks. A changed schedule restarts its count.
pub fn is_limited(number: usize) -> bool {
    number % 8 == 6
}

fn cron(number: usize) -> Option<(u64, &'static str)> {
    let number = number.checked_sub(SCHEDULES - CRONS.len())?;
    CRONS.get(number).copied()
}

/// The interval between two fires. Some generations double it.
pub fn every_ms(number: usize) -> u64 {
    match cron(number) {
        Some((seconds, _)) => seconds * 1_000,
        None => EVERY_MS[number % EVERY_MS.len()],
    }
}

fn pattern(seconds: u64) -> String {
    format!("*/{seconds} * * * * *")
}

/// The interval between the fires of a pattern of these schedules. The checker computes them from
/// it, independently of the library.
pub fn period_ms(pattern: &str) -> Option<u64> {
    let seconds = pattern.strip_prefix("*/")?.strip_suffix(" * * * * *")?;
    let seconds = seconds
        .parse()
        .ok()
        .filter(|s| (1..=60).contains(s) && 60 % s == 0);
    seconds.map(|seconds: u64| seconds * 1_000)
}

/// The schedule as it is declared in one generation. Each generation changes the payload, and for
/// some schedules also the interval.
pub fn schedule(number: usize, generation: u32) -> Result<Schedule, Error> {
    let is_odd = !generation.is_multiple_of(2);
    let mut every_ms = every_ms(number);
    let rule = match cron(number) {
        Some((seconds, zone)) => Schedule::cron(&pattern(seconds))?.zone(zone),
        None => {
            every_ms *= if number % 6 == 5 && is_odd { 2 } else { 1 };
            let every = Schedule::every(Duration::from_millis(every_ms));
            match number % 7 {
                3 => every.anchor(UNIX_EPOCH + Duration::from_millis(ANCHOR_MS)),
                _ => every,
            }
        }
    };
    let payload = vec![b'-'; 1 + generation as usize % 40];
    let mut schedule = rule
        .name(name(number))
        .payload(payload)
        .missed(match (number / 2) % 3 {
            0 => MissedPolicy::One,
            1 => MissedPolicy::Skip,
            _ => MissedPolicy::All { max: MOST_MISSED },
        })
        .overlap(match number % 3 {
            0 => OverlapPolicy::Allow,
            1 => OverlapPolicy::Skip,
            _ => OverlapPolicy::Replace,
        });
    if number % 2 == 1 {
        schedule = schedule.within(WITHIN);
    }
    if number % 5 == 1 {
        schedule = schedule.jitter(Duration::from_millis(every_ms / 2));
    }
    if is_limited(number) {
        schedule = schedule.limit(LIMIT);
    }
    Ok(schedule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fires_of_crons_are_multiples_of_their_seconds() -> Result<(), Error> {
        for number in 0..SCHEDULES {
            let Some((seconds, _)) = cron(number) else {
                continue;
            };
            let step_ms = period_ms(&pattern(seconds)).expect("a pattern");
            assert_eq!(step_ms, every_ms(number));
            // Also around a clock change of Paris.
            for from_ms in [1_700_000_000_000, 1_806_195_598_000] {
                let fires = schedule(number, 0)?.fires(from_ms)?;
                let fires: Vec<_> = fires.take(9).map(|fire| fire.nominal_ms).collect();
                let first = (from_ms / step_ms + 1) * step_ms;
                let count = if is_limited(number) { LIMIT } else { 9 };
                let all: Vec<_> = (0..count).map(|k| first + k * step_ms).collect();
                assert_eq!(fires, all, "{number}");
            }
        }
        assert_eq!(period_ms("*/7 * * * * *"), None);
        Ok(())
    }
}

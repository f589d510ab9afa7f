//! The schedules of a run: their names, their specs and how these change.

use std::time::{Duration, UNIX_EPOCH};

use dueq::{Missed, Overlap, Schedule};

/// How many schedules there are.
pub const SCHEDULES: usize = 24;
/// The set that declares them.
pub const SET: &str = "chaos";
const EVERY_MS: [u64; 12] = [
    50, 100, 250, 500, 700, 1_000, 1_500, 2_000, 3_000, 200, 400, 5_000,
];
/// Before any run: `every` counts from it.
const ANCHOR_MS: u64 = 1_000_007;
const WITHIN: Duration = Duration::from_millis(300);
/// How many missed fires of a schedule become ticks.
const MOST_MISSED: u64 = 5;

/// The name of a schedule.
pub fn name(number: usize) -> String {
    format!("tick-{number}")
}

/// Whether processes remove it. The others exist all the time.
pub fn is_removed(number: usize) -> bool {
    number % 4 == 3
}

/// A schedule as it is declared in a generation: each one changes its payload, and of some also the
/// interval.
pub fn schedule(number: usize, generation: u32) -> Schedule {
    let is_odd = !generation.is_multiple_of(2);
    let factor = if number % 6 == 5 && is_odd { 2 } else { 1 };
    let every_ms = EVERY_MS[number % EVERY_MS.len()] * factor;
    let payload = vec![b'-'; 1 + generation as usize % 40];
    let mut schedule = Schedule::every(Duration::from_millis(every_ms))
        .name(name(number))
        .payload(payload)
        .missed(match (number / 2) % 3 {
            0 => Missed::One,
            1 => Missed::Skip,
            _ => Missed::All { max: MOST_MISSED },
        })
        .overlap(match number % 3 {
            0 => Overlap::Allow,
            1 => Overlap::Skip,
            _ => Overlap::Replace,
        });
    if number % 2 == 1 {
        schedule = schedule.within(WITHIN);
    }
    if number % 5 == 1 {
        schedule = schedule.jitter(Duration::from_millis(every_ms / 2));
    }
    if number % 7 == 3 {
        schedule = schedule.anchor(UNIX_EPOCH + Duration::from_millis(ANCHOR_MS));
    }
    schedule
}

//! The schedules of the run.

use std::collections::HashMap;
use std::time::Duration;

use dueq::{Missed, Overlap, Schedule};

pub(super) const COUNT: u64 = 200;
/// One in so many does not allow overlaps: 190 of 200 do.
const OTHER_ONE_IN: u64 = 20;

/// A schedule, and what its ticks are named after.
#[derive(Debug, Clone)]
pub(super) struct Declared {
    pub(super) every_ms: u64,
    pub(super) replaces: bool,
    pub(super) schedule: Schedule,
}

/// By name.
pub(super) fn all() -> HashMap<String, Declared> {
    (0..COUNT)
        .map(|number| (name(number), one(number)))
        .collect()
}

pub(super) fn name(number: u64) -> String {
    format!("s{number:03}")
}

/// Intervals of 50 ms to 5 s, each longer than the one before by the same ratio.
fn one(number: u64) -> Declared {
    let part = number as f64 / (COUNT - 1) as f64;
    // Neighbours of one kind have all intervals.
    let every_ms = (50.0 * 100_f64.powf(part)).round() as u64;
    let (missed, within) = match number % 4 {
        0 => (Missed::One, None),
        1 => (Missed::Skip, Some(Duration::from_millis(every_ms))),
        2 => (Missed::All { max: 1_000 }, None),
        _ => (Missed::All { max: 3 }, Some(Duration::from_secs(5))),
    };
    let overlap = match number % (2 * OTHER_ONE_IN) {
        7 => Overlap::Skip,
        27 => Overlap::Replace,
        _ => Overlap::Allow,
    };
    let mut schedule = Schedule::every(Duration::from_millis(every_ms))
        .name(name(number))
        .payload("x")
        .missed(missed)
        .overlap(overlap);
    if let Some(within) = within {
        schedule = schedule.within(within);
    }
    if number % 5 == 4 {
        schedule = schedule.jitter(Duration::from_millis(every_ms / 5));
    }
    Declared {
        every_ms,
        replaces: overlap == Overlap::Replace,
        schedule,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_of_two_hundred_do_not_allow_overlaps() {
        let all = all();
        let others = all
            .values()
            .filter(|one| one.schedule != one.schedule.clone().overlap(Overlap::Allow));
        assert_eq!((all.len(), others.count()), (200, 10));
        assert_eq!(all.values().filter(|one| one.replaces).count(), 5);
        assert_eq!(all[&name(0)].every_ms, 50);
        assert_eq!(all[&name(199)].every_ms, 5_000);
    }
}

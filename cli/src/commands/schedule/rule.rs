//! The rule of a stored schedule for people.

use std::time::Duration;

use dueq::ScheduleInfo;
use jiff::SignedDuration;

/// The words of a schedule's spec: names and values.
pub(super) fn words(spec: &str) -> impl Iterator<Item = (&str, &str)> {
    spec.split(' ').filter_map(|word| word.split_once('='))
}

/// The time of `every` in milliseconds; `None` for a cron.
pub(super) fn every_ms(info: &ScheduleInfo) -> Option<u64> {
    let every = words(&info.spec).find(|(name, _)| *name == "every")?;
    every.1.parse().ok()
}

/// `every 15m`, or the pattern and the zone of a cron.
pub(super) fn shown(info: &ScheduleInfo) -> String {
    match (every_ms(info), &info.zone) {
        (Some(ms), _) => format!("every {}", length(ms)),
        (None, Some(zone)) => format!("{} in {zone}", info.pattern),
        (None, None) => info.pattern.clone(),
    }
}

/// A length of time in the notation of the files: `15m`, `1h 30m`, `50ms`.
pub(super) fn length(ms: u64) -> String {
    let length = SignedDuration::try_from(Duration::from_millis(ms));
    length.map_or_else(|_| format!("{ms}ms"), |length| format!("{length:#}"))
}

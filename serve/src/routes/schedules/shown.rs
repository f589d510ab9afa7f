//! Schedules as they are sent: with the fields of `dueq schedule show --json`.

use dueq::ScheduleInfo;
use serde::Serialize;
use utoipa::ToSchema;

/// A schedule.
#[derive(Serialize, ToSchema)]
pub(super) struct Schedule {
    name: String,
    /// The set that declares it.
    set: String,
    /// `active`, `paused`, `ended`, or `dry`: a cron without listed fires, which waits for a worker
    /// to list them.
    state: &'static str,
    /// The time between two fires; null for a cron.
    every_ms: Option<u64>,
    /// The pattern; null without one.
    cron: Option<String>,
    /// The time zone of the pattern.
    zone: Option<String>,
    /// Rule and policies, as they are stored.
    spec: String,
    /// Its next fire; null unless it is active.
    next_ms: Option<u64>,
    /// Up to when its fires are over.
    last_ms: u64,
    /// Its first fire: the counts begin there, again when it is changed.
    since_ms: u64,
    /// Fires that made a tick.
    made: u64,
    /// Fires that no worker took in time.
    missed: u64,
    /// Fires that made no tick because an earlier one was there.
    overlapped: u64,
    /// Fires while it was paused.
    paused: u64,
    /// Ticks made by hand.
    triggered: u64,
    /// How many fires of a cron are listed ahead.
    listed: u64,
    /// The last listed fire.
    listed_until_ms: Option<u64>,
    /// Whether a cron has no fires after the listed ones.
    is_list_final: bool,
    /// The version of the time zone rules of the list.
    tzdata: Option<String>,
}

impl Schedule {
    pub(super) fn new(info: &ScheduleInfo) -> Self {
        Self {
            name: info.name.clone(),
            set: info.set.clone(),
            state: info.state.as_str(),
            every_ms: every_ms(&info.spec),
            cron: Some(info.pattern.clone()).filter(|pattern| !pattern.is_empty()),
            zone: info.zone.clone(),
            spec: info.spec.clone(),
            next_ms: info.next_ms,
            last_ms: info.last_ms,
            since_ms: info.since_ms,
            made: info.made,
            missed: info.missed,
            overlapped: info.overlapped,
            paused: info.paused,
            triggered: info.triggered,
            listed: info.listed,
            listed_until_ms: info.listed_until_ms,
            is_list_final: info.is_list_final,
            tzdata: info.tzdata.clone(),
        }
    }
}

/// The time of `every`: a word of the spec.
fn every_ms(spec: &str) -> Option<u64> {
    let mut words = spec.split(' ');
    words
        .find_map(|word| word.strip_prefix("every="))?
        .parse()
        .ok()
}

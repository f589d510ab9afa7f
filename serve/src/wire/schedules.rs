//! Schedules: lists, and one of them.

use dueq::schedules::ScheduleInfo;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A page of schedules, sorted by set and name.
#[derive(Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct Schedules {
    pub(crate) schedules: Vec<ListedSchedule>,
    /// The address of the next page; null at the end. The header `Link` has it too.
    pub(crate) next: Option<String>,
}

/// A schedule of a list, without its payload.
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct ListedSchedule {
    #[serde(flatten)]
    pub(crate) schedule: Schedule,
    /// The address of the schedule.
    pub(crate) href: String,
}

/// A schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Schedule {
    pub(crate) name: String,
    /// The set that declares it.
    pub(crate) set: String,
    /// `active`, `paused`, `ended`, or `dry`: a cron without listed fires, which waits for a worker
    /// to list them.
    pub(crate) state: String,
    /// The time between two fires; null for a cron.
    pub(crate) every_ms: Option<u64>,
    /// The pattern; null without one.
    pub(crate) cron: Option<String>,
    /// The time zone of the pattern.
    pub(crate) zone: Option<String>,
    /// Rule and policies, as they are stored.
    pub(crate) spec: String,
    /// Its next fire; null unless it is active.
    pub(crate) next_ms: Option<u64>,
    /// Up to when its fires are over.
    pub(crate) last_ms: u64,
    /// Its first fire: the counts begin there, again when it is changed.
    pub(crate) since_ms: u64,
    /// Fires that made a tick.
    pub(crate) made: u64,
    /// Fires that no worker took in time.
    pub(crate) missed: u64,
    /// Fires that made no tick because an earlier one was there.
    pub(crate) overlapped: u64,
    /// Fires while it was paused.
    pub(crate) paused: u64,
    /// Ticks made by hand.
    pub(crate) triggered: u64,
    /// How many fires of a cron are listed ahead.
    pub(crate) listed: u64,
    /// The last listed fire.
    pub(crate) listed_until_ms: Option<u64>,
    /// Whether a cron has no fires after the listed ones.
    pub(crate) is_list_final: bool,
    /// The version of the time zone rules of the list.
    pub(crate) tzdata: Option<String>,
}

impl Schedule {
    pub(crate) fn new(info: &ScheduleInfo) -> Self {
        Self {
            name: info.name.clone(),
            set: info.set.clone(),
            state: info.state.as_str().to_owned(),
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

/// The interval of a rule `every ...`.
fn every_ms(spec: &str) -> Option<u64> {
    let mut words = spec.split(' ');
    words
        .find_map(|word| word.strip_prefix("every="))?
        .parse()
        .ok()
}

//! A recurring schedule: its rule, its policies, and the messages that it makes. Pure: the caller
//! provides the time.

mod builder;
mod check;
#[cfg(any(test, feature = "schedules"))]
mod cron;
mod fires;
mod info;
mod options;
mod text;

use std::time::Duration;

use crate::model::push_rules::OnExpire;

pub use fires::{Fire, Fires};
pub use info::{ScheduleCursor, ScheduleInfo, SchedulePage, ScheduleState};
pub use options::{
    BackfillOutcome, RefillOutcome, ScheduleChange, ScheduleChanges, Tick, TriggerOutcome,
};
pub use options::{MissedPolicy, OverlapPolicy};

pub(crate) use check::{check_name, check_set};
pub(crate) use fires::{FireList, listed_fires, tzdata_version};
pub(crate) use text::option_words;

/// A recurring schedule: the rule of its fires, what becomes of fires that were missed, and the
/// message that each fire makes.
///
/// A *fire* is a nominal time of the rule. The message of a fire is a *tick*: its id is
/// `NAME@<nominal time in Unix ms>`, and a handler finds both in
/// [`Delivery::tick`](crate::Delivery::tick). [`Queue::schedules`](crate::Queue::schedules) declares
/// schedules. Redis makes the ticks: no process needs to run for it.
///
/// A schedule is checked when it is applied, or by [`check`](Schedule::check).
///
/// ```
/// use dueq::schedules::{OverlapPolicy, Schedule};
/// use std::time::Duration;
///
/// let heartbeat = Schedule::every(Duration::from_secs(15)).name("heartbeat").payload("beat");
/// let slow = Schedule::every(Duration::from_secs(3_600)).name("sync").overlap(OverlapPolicy::Skip);
/// # let _ = (heartbeat, slow);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    pub(crate) name: String,
    pub(crate) rule: Rule,
    pub(crate) zone: Option<String>,
    pub(crate) anchor_ms: Option<u64>,
    pub(crate) payload: Vec<u8>,
    pub(crate) missed: MissedPolicy,
    pub(crate) within: Option<Duration>,
    pub(crate) overlap: OverlapPolicy,
    pub(crate) jitter: Duration,
    pub(crate) start_ms: Option<u64>,
    pub(crate) end_ms: Option<u64>,
    pub(crate) limit: Option<u64>,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) expires_after_ms: Option<u64>,
    pub(crate) on_expire: OnExpire,
}

/// The rule by which a schedule fires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rule {
    Every(Duration),
    Cron(String),
}

impl Schedule {
    /// Whether the rule is a cron. Redis knows no time zones, so clients list the fires of crons.
    pub(crate) fn is_cron(&self) -> bool {
        matches!(self.rule, Rule::Cron(_))
    }

    /// The pattern of a cron; empty for `every`.
    pub(crate) fn pattern(&self) -> &str {
        match &self.rule {
            Rule::Every(_) => "",
            Rule::Cron(pattern) => pattern,
        }
    }
}

#[cfg(test)]
mod tests;

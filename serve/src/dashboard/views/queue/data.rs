//! What the page reads of `/v1`.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::dashboard::show;

/// Counts and limits.
#[derive(Deserialize)]
pub(super) struct Stats {
    pub(super) paused: bool,
    #[serde(default)]
    pub(super) paused_partitions: u64,
    #[serde(default)]
    pub(super) partitions: u64,
    pub(super) full: bool,
    pub(super) scheduled: u64,
    pub(super) due: u64,
    pub(super) ready: u64,
    pub(super) leased: u64,
    pub(super) dead: u64,
    pub(super) overdue_ms: u64,
    pub(super) nodes: u64,
    pub(super) parked_ms: u64,
    pub(super) closed_ms: u64,
    pub(super) schedules: u64,
    pub(super) rate: Option<u64>,
    pub(super) rate_window_ms: Option<u64>,
    pub(super) max_leased: Option<u64>,
    /// The other limits, by their names.
    #[serde(flatten)]
    pub(super) rest: Map<String, Value>,
}

impl Stats {
    /// The messages that the queue holds.
    pub(super) fn held(&self) -> u64 {
        [self.ready, self.leased, self.dead]
            .iter()
            .fold(self.scheduled, |sum, count| sum.saturating_add(*count))
    }

    /// The messages without a handler that are not dead.
    pub(super) fn held_back(&self) -> u64 {
        self.scheduled.saturating_add(self.ready)
    }

    /// The messages that are due and that nobody has.
    pub(super) fn waiting(&self) -> u64 {
        self.due.saturating_add(self.ready)
    }
}

#[derive(Deserialize)]
pub(super) struct Listed {
    pub(super) messages: Vec<Message>,
}

#[derive(Deserialize)]
pub(super) struct Message {
    pub(super) due_ms: u64,
}

#[derive(Deserialize)]
pub(super) struct Dues {
    pub(super) last_ms: Option<u64>,
    pub(super) slots: Vec<Slot>,
}

#[derive(Deserialize)]
pub(super) struct Slot {
    pub(super) from_ms: Option<u64>,
    pub(super) before_ms: Option<u64>,
    pub(super) count: u64,
}

#[derive(Clone, Deserialize)]
pub(super) struct History {
    pub(super) now_ms: u64,
    pub(super) from_ms: u64,
    pub(super) slot_ms: u64,
    pub(super) points: Vec<Option<Point>>,
    pub(super) sum: Option<Point>,
}

#[derive(Clone, Deserialize)]
pub(super) struct Point {
    pub(super) pushed: u64,
    pub(super) claimed: u64,
    pub(super) acked: u64,
    pub(super) retried: u64,
    pub(super) crashed: u64,
    pub(super) died: u64,
    pub(super) cancelled: u64,
    pub(super) expired: u64,
    pub(super) lateness: Times,
    pub(super) handling: Times,
}

#[derive(Clone, Deserialize)]
pub(super) struct Times {
    pub(super) count: u64,
    p50_us: Option<u64>,
    p90_us: Option<u64>,
    p99_us: Option<u64>,
    p100_us: Option<u64>,
}

impl Times {
    pub(super) fn percentiles_us(&self) -> Option<[u64; 4]> {
        Some([self.p50_us?, self.p90_us?, self.p99_us?, self.p100_us?])
    }
}

#[derive(Deserialize)]
pub(super) struct Nodes {
    pub(super) nodes: Vec<Node>,
}

#[derive(Deserialize)]
pub(super) struct Node {
    pub(super) id: String,
    pub(super) silent_ms: u64,
    pub(super) parked_ms: u64,
    pub(super) leads: u64,
    pub(super) attends: u64,
}

#[derive(Deserialize)]
pub(super) struct Schedules {
    pub(super) schedules: Vec<Schedule>,
    /// The address of the next page.
    pub(super) next: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Schedule {
    pub(super) name: String,
    pub(super) set: String,
    pub(super) state: String,
    every_ms: Option<u64>,
    cron: Option<String>,
    zone: Option<String>,
    pub(super) next_ms: Option<u64>,
    pub(super) made: u64,
    pub(super) missed: u64,
    pub(super) triggered: u64,
}

impl Schedule {
    /// When it fires, in words.
    pub(super) fn rule(&self) -> String {
        let zone = self.zone.as_deref().unwrap_or("UTC");
        match (&self.cron, self.every_ms) {
            (Some(cron), _) => show::text(&format!("{cron} in {zone}")),
            (None, Some(ms)) => format!("every {}", show::duration(ms)),
            (None, None) => "–".to_owned(),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Examination {
    pub(super) findings: Vec<Finding>,
    pub(super) remarks: Vec<Finding>,
}

impl Examination {
    pub(super) fn is_empty(&self) -> bool {
        self.findings.is_empty() && self.remarks.is_empty()
    }
}

#[derive(Deserialize)]
pub(super) struct Finding {
    pub(super) code: String,
    pub(super) problem: String,
    pub(super) consequence: String,
    pub(super) remedy: String,
}

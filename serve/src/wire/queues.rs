//! Queues of a list or an event.

use serde::Serialize;
use utoipa::ToSchema;

/// A queue of a list or an event.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Listed {
    pub(crate) queue: String,
    /// Null if the server has not read the queue yet, cannot read it, or there is no such queue.
    pub(crate) counts: Option<Counts>,
    /// How old the counts are.
    pub(crate) age_ms: Option<u64>,
    /// Why the server cannot read the queue, or a part of it, now. Meanwhile `overdue_ms` grows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// What a queue holds and has done.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Counts {
    /// Whether an operator paused it.
    pub(crate) paused: bool,
    /// Whether as many messages are leased as `max_leased` allows.
    pub(crate) full: bool,
    /// For how long nothing is claimed; 0: the queue is open.
    pub(crate) closed_ms: u64,
    /// Messages that wait for their due time, also between two attempts.
    pub(crate) scheduled: u64,
    /// Of these, how many are past their due time.
    pub(crate) due: u64,
    /// Due messages that wait for a free handler.
    pub(crate) ready: u64,
    /// Messages with a handler.
    pub(crate) leased: u64,
    /// Messages that were given up.
    pub(crate) dead: u64,
    /// Age of the oldest due message that nobody has claimed.
    pub(crate) overdue_ms: u64,
    /// Live workers.
    pub(crate) nodes: u64,
    /// Recurring schedules.
    pub(crate) schedules: u64,
    /// Messages pushed since the queue was created, as the following counts.
    pub(crate) pushed: u64,
    /// Deliveries made.
    pub(crate) claimed: u64,
    /// Deliveries acked.
    pub(crate) acked: u64,
    /// Deliveries settled with `retry`.
    pub(crate) retried: u64,
    /// Leases that ran out.
    pub(crate) crashed: u64,
    /// Messages that died.
    pub(crate) died: u64,
    /// Messages cancelled.
    pub(crate) cancelled: u64,
}

impl From<&dueq::Stats> for Counts {
    fn from(stats: &dueq::Stats) -> Self {
        Self {
            paused: stats.paused,
            full: stats.full,
            closed_ms: stats.closed_ms,
            scheduled: stats.scheduled,
            due: stats.due,
            ready: stats.ready,
            leased: stats.leased,
            dead: stats.dead,
            overdue_ms: stats.overdue_ms,
            nodes: stats.nodes,
            schedules: stats.schedules,
            pushed: stats.pushed,
            claimed: stats.claimed,
            acked: stats.acked,
            retried: stats.retried,
            crashed: stats.crashed,
            died: stats.died,
            cancelled: stats.cancelled,
        }
    }
}

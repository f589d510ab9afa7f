//! The counts and limits of a queue, as they are sent.

use serde::Serialize;
use utoipa::ToSchema;

use crate::edge::shown::shown;
use crate::routes::queues::limits::Limits;

/// The counts and limits of a queue.
#[derive(Serialize, ToSchema)]
#[schema(as = Queue)]
pub(super) struct Stats {
    queue: String,
    /// Whether an operator paused it: nothing is claimed. Of several partitions, whether one of them
    /// is paused.
    paused: bool,
    /// How many partitions are paused. Fewer than `partitions`: a pause, or its end, has not reached
    /// all.
    paused_partitions: u64,
    /// The partitions that these numbers are of.
    partitions: u64,
    /// Whether as many messages are leased as `max_leased` allows.
    full: bool,
    /// Messages that wait for their due time, also between two attempts.
    scheduled: u64,
    /// Of these, how many are past their due time.
    due: u64,
    /// Due messages that wait for a free handler.
    ready: u64,
    /// Messages with a handler.
    leased: u64,
    /// Messages that were given up.
    dead: u64,
    /// Age of the oldest due message that nobody has claimed.
    overdue_ms: u64,
    /// Live workers.
    nodes: u64,
    /// For how long a parked worker may send no beat; 0: none is parked.
    parked_ms: u64,
    /// For how long nothing is claimed; 0: the queue is open.
    closed_ms: u64,
    /// Messages pushed since the queue was created, as the following counts.
    pushed: u64,
    /// Deliveries made.
    claimed: u64,
    /// Deliveries acked.
    acked: u64,
    /// Deliveries settled with `again`.
    repeated: u64,
    /// Deliveries settled with `retry`.
    retried: u64,
    /// Deliveries released.
    released: u64,
    /// Leases that ran out.
    crashed: u64,
    /// Messages that died.
    died: u64,
    /// Messages cancelled.
    cancelled: u64,
    /// Dead messages revived.
    requeued: u64,
    /// Messages purged.
    purged: u64,
    /// Dead messages trimmed by age or number.
    trimmed: u64,
    /// Messages that expired.
    expired: u64,
    /// Deliveries given back because the receiver asked for a break.
    throttled: u64,
    /// Deliveries settled with `snooze`.
    snoozed: u64,
    /// Recurring schedules.
    schedules: u64,
    /// Crons whose list of fires needs a refill.
    low_lists: u64,
    /// Of these, crons whose list is empty: they make no ticks.
    dry_lists: u64,
    #[serde(flatten)]
    limits: Limits,
    /// What could not be read, and so is not in the counts. Missing if everything was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unread: Vec<Unread>,
}

/// A part of a queue that could not be read.
#[derive(Serialize, ToSchema)]
pub(crate) struct Unread {
    /// `partition INDEX (TAG)`.
    name: String,
    /// Why.
    error: String,
}

/// The parts that could not be read.
pub(crate) fn unread<T>(reached: &dueq::Reached<T>) -> Vec<Unread> {
    let unread = reached.unread.iter().map(|one| Unread {
        name: one.name.clone(),
        error: shown(&one.error.to_string()),
    });
    unread.collect()
}

impl Stats {
    pub(super) fn new(queue: &str, reached: &dueq::Reached<dueq::Stats>) -> Self {
        let stats = &reached.value;
        Self {
            queue: queue.to_owned(),
            paused: stats.paused,
            paused_partitions: stats.paused_partitions,
            partitions: stats.partitions,
            full: stats.full,
            scheduled: stats.scheduled,
            due: stats.due,
            ready: stats.ready,
            leased: stats.leased,
            dead: stats.dead,
            overdue_ms: stats.overdue_ms,
            nodes: stats.nodes,
            parked_ms: stats.parked_ms,
            closed_ms: stats.closed_ms,
            pushed: stats.pushed,
            claimed: stats.claimed,
            acked: stats.acked,
            repeated: stats.repeated,
            retried: stats.retried,
            released: stats.released,
            crashed: stats.crashed,
            died: stats.died,
            cancelled: stats.cancelled,
            requeued: stats.requeued,
            purged: stats.purged,
            trimmed: stats.trimmed,
            expired: stats.expired,
            throttled: stats.throttled,
            snoozed: stats.snoozed,
            schedules: stats.schedules,
            low_lists: stats.low_lists,
            dry_lists: stats.dry_lists,
            limits: Limits::new(stats),
            unread: unread(reached),
        }
    }
}

//! The counts and limits of a queue, as they are sent.

use serde::Serialize;
use utoipa::ToSchema;

/// The counts and limits of a queue.
#[derive(Serialize, ToSchema)]
#[schema(as = Queue)]
pub(super) struct Stats {
    queue: String,
    /// Whether an operator paused it: nothing is claimed.
    paused: bool,
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
    /// The limit of attempts of messages without one of their own.
    max_attempts: u64,
    /// How many crashes a message survives.
    max_crashes: u64,
    /// How many messages it may hold; null for no limit.
    max_messages: Option<u64>,
    /// The largest payload that it takes.
    max_payload_bytes: u64,
    /// How long dead messages are kept.
    keep_dead_ms: u64,
    /// How many dead messages are kept.
    keep_dead: u64,
    /// How many ids of pushes with a window it remembers.
    max_remembered: u64,
    /// How many messages may be leased at once; null for no limit.
    max_leased: Option<u64>,
    /// For how long a throttle closes the queue at most.
    max_throttle_ms: u64,
    /// How many messages may start in some time; null for no limit.
    rate: Option<Rate>,
}

/// The rate of a queue.
#[derive(Serialize, ToSchema)]
struct Rate {
    /// How many messages start in a window at most.
    starts: u64,
    window_ms: u64,
    /// How many may start at once.
    burst: u64,
}

impl Stats {
    pub(super) fn new(queue: &str, stats: &dueq::Stats) -> Self {
        let limited = |most: u64| Some(most).filter(|most| *most > 0);
        Self {
            queue: queue.to_owned(),
            paused: stats.paused,
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
            max_attempts: stats.max_attempts,
            max_crashes: stats.max_crashes,
            max_messages: limited(stats.max_messages),
            max_payload_bytes: stats.max_payload_bytes,
            keep_dead_ms: stats.keep_dead_ms,
            keep_dead: stats.keep_dead,
            max_remembered: stats.max_remembered,
            max_leased: limited(stats.max_leased),
            max_throttle_ms: stats.max_throttle_ms,
            rate: stats.rate.map(|rate| Rate {
                starts: rate.starts,
                window_ms: u64::try_from(rate.window.as_millis()).unwrap_or(u64::MAX),
                burst: rate.burst,
            }),
        }
    }
}

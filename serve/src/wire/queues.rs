//! Queues: lists and events, and the counts and limits of one.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::edge::shown::shown;

/// A page of the queues that the caller may use, sorted by name.
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct Queues {
    pub(crate) queues: Vec<Listed>,
    /// The address of the next page; null at the end. The header `Link` has it too.
    pub(crate) next: Option<String>,
    /// How long ago Redis last answered the server's poller.
    pub(crate) age_ms: u64,
    /// Whether all queues are known that there were `names_age_ms` ago: not before the first scan of the
    /// keys has ended, nor if the last one began more than 5 minutes and twice its own time ago, nor if
    /// there are more than 10,000.
    pub(crate) complete: bool,
    /// How long ago the last scan of all keys began: a queue that was created since may be missing.
    /// Missing before the first scan has ended, and if the server has a list of names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) names_age_ms: Option<u64>,
    /// Why Redis does not answer now. The counts are of before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// A queue of a list or an event.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
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
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
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

impl From<&dueq::QueueStats> for Counts {
    fn from(stats: &dueq::QueueStats) -> Self {
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

/// The counts and limits of a queue.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct Queue {
    pub(crate) queue: String,
    /// Whether an operator paused it: nothing is claimed. Of several partitions, whether one of them
    /// is paused.
    pub(crate) paused: bool,
    /// How many partitions are paused. Fewer than `partitions`: a pause, or its end, has not reached
    /// all.
    pub(crate) paused_partitions: u64,
    /// The partitions that these numbers are of.
    pub(crate) partitions: u64,
    /// How many partitions the queue gets by a change that is not complete; 0 if none is.
    pub(crate) changing_to: u64,
    /// Messages on their way to another partition meanwhile. They are in none of the states.
    pub(crate) moving: u64,
    /// Whether as many messages are leased as `max_leased` allows.
    pub(crate) full: bool,
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
    /// How many of these workers an operator drained: they take nothing new.
    #[serde(default)]
    pub(crate) drained_nodes: u64,
    /// For how long a parked worker may send no beat; 0: none is parked.
    pub(crate) parked_ms: u64,
    /// For how long nothing is claimed; 0: the queue is open.
    pub(crate) closed_ms: u64,
    /// Messages pushed since the queue was created, as the following counts.
    pub(crate) pushed: u64,
    /// Deliveries made.
    pub(crate) claimed: u64,
    /// Deliveries acked.
    pub(crate) acked: u64,
    /// Deliveries settled with `again`.
    pub(crate) repeated: u64,
    /// Deliveries settled with `retry`.
    pub(crate) retried: u64,
    /// Deliveries released.
    pub(crate) released: u64,
    /// Leases that ran out.
    pub(crate) crashed: u64,
    /// Messages that died.
    pub(crate) died: u64,
    /// Messages cancelled.
    pub(crate) cancelled: u64,
    /// Dead messages revived.
    pub(crate) requeued: u64,
    /// Messages purged.
    pub(crate) purged: u64,
    /// Dead messages trimmed by age or number.
    pub(crate) trimmed: u64,
    /// Messages that expired.
    pub(crate) expired: u64,
    /// Deliveries given back because the receiver asked for a break.
    pub(crate) throttled: u64,
    /// Deliveries settled with `snooze`.
    pub(crate) snoozed: u64,
    /// Recurring schedules.
    pub(crate) schedules: u64,
    /// Crons whose list of fires needs a refill.
    pub(crate) low_lists: u64,
    /// Of these, crons whose list is empty: they make no ticks.
    pub(crate) dry_lists: u64,
    #[serde(flatten)]
    pub(crate) limits: Limits,
    /// What could not be read, and so is not in the counts. Missing if everything was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unread: Vec<Unread>,
}

/// The limits of a queue.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct Limits {
    /// After how many failed attempts a message is dead, unless it has its own limit.
    pub(crate) max_attempts: u64,
    /// How many crashes a message survives.
    pub(crate) max_crashes: u64,
    /// How many messages the queue may hold; null for no limit.
    pub(crate) max_messages: Option<u64>,
    /// The largest payload that it takes.
    pub(crate) max_payload_bytes: u64,
    /// How long dead messages are kept.
    pub(crate) keep_dead_ms: u64,
    /// How many dead messages are kept, the newest.
    pub(crate) keep_dead: u64,
    /// How many messages start in any `rate_window_ms` at most; null for no limit.
    pub(crate) rate: Option<u64>,
    /// The window of the rate.
    pub(crate) rate_window_ms: Option<u64>,
    /// How many messages of the rate may start at once.
    pub(crate) burst: Option<u64>,
    /// How many messages may be leased at once; null for no limit.
    pub(crate) max_leased: Option<u64>,
    /// For how long a throttle closes the queue at most.
    pub(crate) max_throttle_ms: u64,
    /// How many ids and calls the queue remembers.
    pub(crate) max_remembered: u64,
    /// For how long what happened to a message is kept after its end; 0: not after it. Null: it is
    /// not kept at all.
    pub(crate) keep_life_ms: Option<u64>,
}

/// A part of a queue that could not be read.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct Unread {
    /// `partition INDEX (TAG)`.
    pub(crate) name: String,
    /// Why.
    pub(crate) error: String,
}

impl Queue {
    pub(crate) fn new(queue: &str, reached: &dueq::inspect::PartialRead<dueq::QueueStats>) -> Self {
        let stats = &reached.value;
        Self {
            queue: queue.to_owned(),
            paused: stats.paused,
            paused_partitions: stats.paused_partitions,
            partitions: stats.partitions,
            changing_to: stats.changing_to,
            moving: stats.moving,
            full: stats.full,
            scheduled: stats.scheduled,
            due: stats.due,
            ready: stats.ready,
            leased: stats.leased,
            dead: stats.dead,
            overdue_ms: stats.overdue_ms,
            nodes: stats.nodes,
            drained_nodes: stats.drained_nodes,
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

impl Queue {
    /// The number of messages that the queue holds.
    pub(crate) fn held(&self) -> u64 {
        [self.ready, self.leased, self.dead]
            .iter()
            .fold(self.scheduled, |sum, count| sum.saturating_add(*count))
    }

    /// The number of messages that are neither leased nor dead.
    pub(crate) fn held_back(&self) -> u64 {
        self.scheduled.saturating_add(self.ready)
    }

    /// The number of due messages that are not leased.
    pub(crate) fn waiting(&self) -> u64 {
        self.due.saturating_add(self.ready)
    }
}

impl Limits {
    pub(crate) fn new(stats: &dueq::QueueStats) -> Self {
        let limited = |most: u64| Some(most).filter(|most| *most > 0);
        let rate = stats.rate;
        let window_ms = |rate: dueq::Rate| u64::try_from(rate.window.as_millis());
        Self {
            max_attempts: stats.max_attempts,
            max_crashes: stats.max_crashes,
            max_messages: limited(stats.max_messages),
            max_payload_bytes: stats.max_payload_bytes,
            keep_dead_ms: stats.keep_dead_ms,
            keep_dead: stats.keep_dead,
            rate: rate.map(|rate| rate.starts),
            rate_window_ms: rate.map(|rate| window_ms(rate).unwrap_or(u64::MAX)),
            burst: rate.map(|rate| rate.burst),
            max_leased: limited(stats.max_leased),
            max_throttle_ms: stats.max_throttle_ms,
            max_remembered: stats.max_remembered,
            keep_life_ms: stats.keep_life_ms,
        }
    }
}

/// The partitions that could not be read.
pub(crate) fn unread<T>(reached: &dueq::inspect::PartialRead<T>) -> Vec<Unread> {
    let unread = reached.unread.iter().map(|one| Unread {
        name: one.name.clone(),
        error: shown(&one.error.to_string()),
    });
    unread.collect()
}

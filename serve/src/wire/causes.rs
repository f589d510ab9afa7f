//! Why due messages wait, by the counts of a queue.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::wire::queues::Queue;

/// A message that has been due for longer than this is late: a live worker claims it within 1 s.
pub(crate) const LATE_MS: u64 = 2_000;
/// A shorter announced silence does not mean that a worker parks the queue: workers announce it for
/// busy queues too.
const SHORT_PARK_MS: u64 = 2_000;
/// The longest time for which a worker parks a queue.
const LONGEST_PARK_MS: u64 = 60_000;

/// A reason for which due messages wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WaitCause {
    /// An operator paused the queue, or some of its partitions.
    Paused,
    /// The queue was closed for some time.
    Closed,
    /// The rate was used up.
    Rate,
    /// As many messages were leased as `max_leased` allows.
    Full,
    /// No worker was alive.
    NoWorker,
    /// All live workers were drained.
    Drained,
    /// Workers had parked the queue, because it was empty for long.
    Parked,
    /// Workers were alive, and no message had a handler.
    Unclaimed,
    /// All handlers were busy.
    Busy,
    /// Redis, or a part of the queue, did not answer.
    Unread,
}

/// A minute in which the server saw messages that were late by more than 2 s, or could not read them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct LateMinute {
    /// When it begins.
    pub(crate) start_ms: u64,
    /// The greatest age of a due message that nobody had claimed.
    pub(crate) overdue_ms: u64,
    /// Why messages waited. Causes of one minute may have followed each other.
    pub(crate) causes: Vec<WaitCause>,
}

impl WaitCause {
    /// All causes that apply; none if no due message waits.
    pub(crate) fn of(stats: &Queue) -> Vec<Self> {
        if stats.waiting() == 0 {
            return Vec::new();
        }
        let is_limited = is_limited(stats);
        let is_deserted = stats.nodes == 0;
        let causes = [
            (Self::Paused, stats.paused),
            (Self::Closed, stats.closed_ms > 0 && !is_limited),
            (Self::Rate, is_limited),
            (Self::Full, stats.full),
            (Self::NoWorker, is_deserted),
            (
                Self::Drained,
                !is_deserted && stats.drained_nodes >= stats.nodes,
            ),
        ];
        let causes = causes.into_iter().filter(|(_, applies)| *applies);
        let mut causes: Vec<_> = causes.map(|(cause, _)| cause).collect();
        if causes.is_empty() && is_late(stats) {
            causes.push(Self::of_workers(stats));
        }
        causes
    }

    /// The cause if workers are live and nothing else explains the wait.
    fn of_workers(stats: &Queue) -> Self {
        let parked = SHORT_PARK_MS + 1..=LONGEST_PARK_MS;
        match stats.leased {
            _ if parked.contains(&stats.parked_ms) && stats.overdue_ms <= LONGEST_PARK_MS => {
                Self::Parked
            }
            0 => Self::Unclaimed,
            _ => Self::Busy,
        }
    }
}

/// Whether the oldest unclaimed message is late.
pub(crate) fn is_late(stats: &Queue) -> bool {
    stats.overdue_ms > LATE_MS && stats.waiting() > 0
}

/// Whether the queue's rate is the reason.
fn is_limited(stats: &Queue) -> bool {
    let window_ms = stats.limits.rate.and(stats.limits.rate_window_ms);
    window_ms.is_some_and(|window_ms| {
        stats.closed_ms <= window_ms && (stats.closed_ms > 0 || is_late(stats))
    })
}

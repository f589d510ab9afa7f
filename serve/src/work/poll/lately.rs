//! What has happened in a queue in the last hour.

use dueq::inspect::{HistoryPoint, HistoryResolution, QueueHistory};

/// The time of the trouble that the list of queues shows and sorts by.
const RECENT_MS: u64 = 600_000;

/// The recent events of a queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Lately {
    /// The number of messages pushed in the last hour.
    pub(crate) pushed: u64,
    /// The number of messages that ended in the last hour.
    pub(crate) ended: u64,
    pub(crate) recent: Recent,
    /// The minutes that have a record, the earliest first.
    pub(crate) minutes: Vec<Minute>,
}

/// The last ten minutes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Recent {
    /// p99 of the lateness; `None` if nothing was delivered.
    pub(crate) p99_us: Option<u64>,
    pub(crate) died: u64,
    pub(crate) crashed: u64,
    /// Messages that were pushed or ended.
    pub(crate) events: u64,
}

/// A minute of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Minute {
    pub(crate) start_ms: u64,
    pub(crate) pushed: u64,
    pub(crate) acked: u64,
    pub(crate) crashed: u64,
    pub(crate) died: u64,
    /// p99 of the lateness.
    pub(crate) p99_us: Option<u64>,
}

impl Lately {
    pub(super) fn new(history: &QueueHistory) -> Self {
        let minute_ms = HistoryResolution::Minutes.slot_ms();
        let present = history.now_ms / minute_ms * minute_ms;
        let recent = history.sum(present.saturating_sub(RECENT_MS)..u64::MAX);
        let recent = recent.unwrap_or_default();
        let hour = history.sum(0..u64::MAX).unwrap_or_default();
        Self {
            pushed: hour.pushed,
            ended: ended_in(&hour),
            recent: Recent {
                p99_us: recent.lateness.quantile_us(0.99),
                died: recent.died,
                crashed: recent.crashed,
                events: recent.pushed.saturating_add(ended_in(&recent)),
            },
            minutes: history.points.iter().map(Minute::new).collect(),
        }
    }
}

impl Minute {
    fn new(point: &HistoryPoint) -> Self {
        Self {
            start_ms: point.start_ms,
            pushed: point.pushed,
            acked: point.acked,
            crashed: point.crashed,
            died: point.died,
            p99_us: point.lateness.quantile_us(0.99),
        }
    }
}

/// The least number of messages that left the queue or died. An expired message has died, and then
/// counts as dead too, or was dropped.
pub(crate) fn ended(acked: u64, cancelled: u64, died: u64, expired: u64) -> u64 {
    acked
        .saturating_add(cancelled)
        .saturating_add(died.max(expired))
}

pub(super) fn ended_in(point: &HistoryPoint) -> u64 {
    ended(point.acked, point.cancelled, point.died, point.expired)
}

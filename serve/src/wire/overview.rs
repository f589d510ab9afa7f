//! What a queue does and has done: when its messages are due, its history, its errors.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dueq::inspect::HistoryPoint;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::wire::causes::LateMinute;
use crate::wire::queues::Unread;

/// How many scheduled messages are due when.
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct Dues {
    pub(crate) queue: String,
    /// The clock of Redis at the count.
    pub(crate) now_ms: u64,
    /// When the last scheduled message is due; null if none is scheduled.
    pub(crate) last_ms: Option<u64>,
    /// The messages before the first time, from each time to before the next one, and from the last
    /// time on.
    pub(crate) slots: Vec<Slot>,
    /// The partitions that did not reply within 2 s, whose messages are not counted.
    pub(crate) unread: Vec<Unread>,
}

/// The messages that are due in some time.
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct Slot {
    /// Its first millisecond; null for the first slot.
    pub(crate) from_ms: Option<u64>,
    /// The first millisecond after it; null for the last slot.
    pub(crate) before_ms: Option<u64>,
    pub(crate) count: u64,
}

/// What a queue has done.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct History {
    pub(crate) queue: String,
    /// The clock of Redis at the call.
    pub(crate) now_ms: u64,
    /// When the first slot begins.
    pub(crate) from_ms: u64,
    /// The length of a slot: a minute, an hour or a day.
    pub(crate) slot_ms: u64,
    /// A point for each slot, in order of time; the last one is of the present slot, which is not
    /// over. Null if nothing was recorded: nothing happened, or no worker ran.
    pub(crate) points: Vec<Option<Point>>,
    /// All points as one, with the percentiles of the whole range; null if all are.
    pub(crate) sum: Option<Point>,
    /// The minutes of the last hour in which this server saw that messages were late, and why. It keeps
    /// them in memory: another server, or this one after a restart, has its own.
    pub(crate) late: Vec<LateMinute>,
    /// Since when this server looks at its queues, at least once a minute if they are at most 1,000;
    /// null if it does not yet.
    pub(crate) watched_since_ms: Option<u64>,
    /// The partitions that did not reply within 2 s, whose part is missing.
    pub(crate) unread: Vec<Unread>,
}

macro_rules! points {
    ($($(#[doc = $help:literal])+ $counter:ident,)+) => {
        /// What happened in some time.
        #[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
        #[schema(as = HistoryPoint)]
        pub(crate) struct Point {
            /// When it begins.
            pub(crate) start_ms: u64,
            /// When it ends; of the present slot, the time of the call.
            pub(crate) end_ms: u64,
            /// Messages that were scheduled at the end.
            pub(crate) scheduled: u64,
            /// Messages that were ready at the end.
            pub(crate) ready: u64,
            /// Messages that had a handler at the end.
            pub(crate) leased: u64,
            /// Messages that were dead at the end.
            pub(crate) dead: u64,
            $($(#[doc = $help])+ pub(crate) $counter: u64,)+
            /// From the due time to the start of the handler.
            pub(crate) lateness: HistoryTimes,
            /// How long the handlers ran.
            pub(crate) handling: HistoryTimes,
        }

        impl Point {
            pub(crate) fn new(point: &HistoryPoint) -> Self {
                Self {
                    start_ms: point.start_ms,
                    end_ms: point.end_ms,
                    scheduled: point.scheduled,
                    ready: point.ready,
                    leased: point.leased,
                    dead: point.dead,
                    $($counter: point.$counter,)+
                    lateness: HistoryTimes::new(&point.lateness),
                    handling: HistoryTimes::new(&point.handling),
                }
            }
        }
    };
}

points! {
    /// Messages pushed.
    pushed,
    /// Deliveries made.
    claimed,
    /// Deliveries acked.
    acked,
    /// Deliveries settled with `again`.
    repeated,
    /// Deliveries settled with `retry` that were scheduled again.
    retried,
    /// Deliveries released.
    released,
    /// Leases that ran out.
    crashed,
    /// Messages that died.
    died,
    /// Messages cancelled.
    cancelled,
    /// Dead messages revived.
    requeued,
    /// Messages purged.
    purged,
    /// Dead messages trimmed by age or number.
    trimmed,
    /// Messages that expired.
    expired,
    /// Deliveries given back because the receiver asked for a break.
    throttled,
    /// Deliveries settled with `snooze` that were scheduled again.
    snoozed,
}

/// How long something took, over many messages. A percentile is never too small, at least 128, and
/// at most 1.42 times too large; null without times; 18446744073709551615 for more than 12.7 days.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct HistoryTimes {
    /// Of how many messages the time is known.
    pub(crate) count: u64,
    /// Half of the times were at most so long.
    pub(crate) p50_us: Option<u64>,
    /// 90 of 100 times were at most so long.
    pub(crate) p90_us: Option<u64>,
    /// 99 of 100 times were at most so long.
    pub(crate) p99_us: Option<u64>,
    /// All times were at most so long.
    pub(crate) p100_us: Option<u64>,
}

impl HistoryTimes {
    /// p50, p90, p99 and p100 in microseconds; `None` if nothing was timed.
    pub(crate) fn percentiles_us(&self) -> Option<[u64; 4]> {
        Some([self.p50_us?, self.p90_us?, self.p99_us?, self.p100_us?])
    }

    fn new(times: &dueq::inspect::TimeHistogram) -> Self {
        Self {
            count: times.count(),
            p50_us: times.quantile_us(0.5),
            p90_us: times.quantile_us(0.9),
            p99_us: times.quantile_us(0.99),
            p100_us: times.quantile_us(1.0),
        }
    }
}

/// The newest dead messages, in groups by the first line of their errors.
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct Errors {
    pub(crate) queue: String,
    /// How many messages were read: the newest 1,000 at most.
    pub(crate) read: usize,
    /// Whether there are older ones.
    pub(crate) more: bool,
    /// The largest group first.
    pub(crate) groups: Vec<Group>,
}

/// Dead messages with the same first line of their error.
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct Group {
    /// The first line, or its first 300 characters.
    pub(crate) error: String,
    /// Whether they died because their leases ran out too often, and not by a handler's failure.
    pub(crate) crashed: bool,
    pub(crate) count: usize,
    /// When the newest of them died.
    pub(crate) newest_ms: u64,
    /// When the oldest of them died.
    pub(crate) oldest_ms: u64,
    /// The newest of them, at most three.
    pub(crate) examples: Vec<Example>,
}

/// A dead message.
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct Example {
    pub(crate) id: String,
    /// The id in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id_base64: Option<String>,
}

impl Example {
    pub(crate) fn new(id: &[u8]) -> Self {
        let is_text = std::str::from_utf8(id).is_ok();
        Self {
            id: String::from_utf8_lossy(id).into_owned(),
            id_base64: (!is_text).then(|| STANDARD.encode(id)),
        }
    }

    /// The id as a path segment.
    pub(crate) fn segment(&self) -> String {
        let encoded = self.id_base64.as_ref();
        let bytes = encoded.and_then(|encoded| STANDARD.decode(encoded).ok());
        dueq_input::id_path(&bytes.unwrap_or_else(|| self.id.clone().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_point_has_every_count_of_the_library() {
        let point = HistoryPoint::default();
        let sent = serde_json::to_value(Point::new(&point)).expect("JSON");
        let sent = sent.as_object().expect("an object");
        for (name, _) in point.counts() {
            assert_eq!(sent.get(name), Some(&0.into()), "{name}");
        }
        assert_eq!(sent.len(), point.counts().len() + 8);
    }
}

//! A point of a history, as it is sent: with the fields of `dueq history --json`.

use dueq::HistoryPoint;
use serde::Serialize;
use utoipa::ToSchema;

macro_rules! points {
    ($($(#[doc = $help:literal])+ $counter:ident,)+) => {
        /// What happened in some time.
        #[derive(Debug, Serialize, ToSchema)]
        #[schema(as = HistoryPoint)]
        pub(super) struct Point {
            /// When it begins.
            start_ms: u64,
            /// When it ends; of the present slot, the time of the call.
            end_ms: u64,
            /// Messages that were scheduled at the end.
            scheduled: u64,
            /// Messages that were ready at the end.
            ready: u64,
            /// Messages that had a handler at the end.
            leased: u64,
            /// Messages that were dead at the end.
            dead: u64,
            $($(#[doc = $help])+ $counter: u64,)+
            /// From the due time to the start of the handler.
            lateness: HistoryTimes,
            /// How long the handlers ran.
            handling: HistoryTimes,
        }

        impl Point {
            pub(super) fn new(point: &HistoryPoint) -> Self {
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
#[derive(Debug, Serialize, ToSchema)]
struct HistoryTimes {
    /// Of how many messages the time is known.
    count: u64,
    /// Half of the times were at most so long.
    p50_us: Option<u64>,
    /// 90 of 100 times were at most so long.
    p90_us: Option<u64>,
    /// 99 of 100 times were at most so long.
    p99_us: Option<u64>,
    /// All times were at most so long.
    p100_us: Option<u64>,
}

impl HistoryTimes {
    fn new(times: &dueq::Times) -> Self {
        Self {
            count: times.count(),
            p50_us: times.quantile_us(0.5),
            p90_us: times.quantile_us(0.9),
            p99_us: times.quantile_us(0.99),
            p100_us: times.quantile_us(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn point_has_all_counts_of_the_library() {
        let point = HistoryPoint::default();
        let sent = serde_json::to_value(Point::new(&point)).expect("JSON");
        let sent = sent.as_object().expect("an object");
        for (name, _) in point.counts() {
            assert_eq!(sent.get(name), Some(&0.into()), "{name}");
        }
        assert_eq!(sent.len(), point.counts().len() + 8);
    }
}

//! The metrics of a `Queue` handle: counted in atomics, read as snapshots.

mod count;
mod histogram;
pub(crate) mod text;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use count::Counter;
pub use histogram::{Bucket, Histogram};

use crate::error::{Applied, Error, ErrorKind};
use histogram::Recorder;

/// The number of counts.
const COUNTS: usize = Counter::ALL.len();

/// A snapshot of the work of a [`Queue`](crate::Queue), its clones and their workers. All handles
/// of one name that a [`Client`](crate::Client) makes share their metrics.
///
/// The numbers cover this process and this client only; [`Queue::stats`](crate::Queue::stats)
/// covers the queue in Redis. They start at zero with the first handle of the name, and again
/// after the last handle was dropped and 64 other names were asked for. To measure two workers of
/// one queue separately, use two clients. Counts only grow. The numbers are read one after another
/// while work continues, so two of them may not match exactly. Counting cannot be disabled; it
/// costs a few relaxed additions per message.
///
/// Names, help texts and buckets have the form that Prometheus expects:
/// [`PrometheusText`](crate::metrics::PrometheusText) writes them.
///
/// ```
/// use dueq::metrics::{Counter, Metrics};
///
/// fn summary(metrics: &Metrics) -> String {
///     let late_us = metrics.lateness.quantile_us(0.99).unwrap_or(0);
///     format!("{} acked, {} running, p99 {late_us} us late", metrics.count(Counter::Acked), metrics.handlers_running)
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    counts: [u64; COUNTS],
    /// Handlers that are running now.
    pub handlers_running: u64,
    /// The time from a message's due time to the start of its handler, by Redis's clock; without a
    /// worker, to the reply of the claim. See
    /// [`Delivery::started_us`](crate::Delivery::started_us). After a retry it counts from the due
    /// time of that retry; after a crash, from the original due time.
    pub lateness: Histogram,
    /// How long handlers ran, however they ended; the settlement is not included.
    pub handling: Histogram,
}

impl Metrics {
    /// Returns one count.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::metrics::Counter;
    ///
    /// orders.push("rate it").await?;
    /// assert_eq!(orders.metrics().count(Counter::PushCreated), 1);
    /// # });
    /// ```
    pub fn count(&self, count: Counter) -> u64 {
        self.counts[count as usize]
    }

    /// All counts, always in the same order.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// for (count, value) in orders.metrics().counts() {
    ///     println!("dueq_{}_total {value}", count.name());
    /// }
    /// # });
    /// ```
    pub fn counts(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        Counter::ALL
            .iter()
            .map(|count| (*count, self.count(*count)))
    }
}

/// The counters behind [`Metrics`]. Relaxed atomics suffice: no count orders other memory accesses.
pub(crate) struct Meters {
    counts: [AtomicU64; COUNTS],
    handlers_running: AtomicU64,
    lateness: Recorder,
    handling: Recorder,
}

impl Meters {
    pub(crate) fn new() -> Self {
        let counts = std::array::from_fn(|_| AtomicU64::new(0));
        Self {
            counts,
            handlers_running: AtomicU64::new(0),
            lateness: Recorder::new(),
            handling: Recorder::new(),
        }
    }

    pub(crate) fn add(&self, count: Counter) {
        self.add_many(count, 1);
    }

    pub(crate) fn add_many(&self, count: Counter, more: u64) {
        if more > 0 {
            self.counts[count as usize].fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Counts a call to Redis that failed, whether it is repeated or not.
    pub(crate) fn call_failed(&self, error: &Error) {
        self.add(Counter::CallFailed);
        if error.was_applied() == Applied::Unknown {
            self.add(Counter::CallUnknown);
        }
        if error.kind() == ErrorKind::Server {
            self.add(Counter::ServerError);
        }
    }

    pub(crate) fn late(&self, lateness: Duration) {
        self.lateness.record(lateness);
    }

    pub(crate) fn handled(&self, took: Duration) {
        self.handling.record(took);
    }

    /// Counts a handler as running until the returned value is dropped.
    pub(crate) fn handler_runs(&self) -> RunningHandler<'_> {
        self.handlers_running.fetch_add(1, Ordering::Relaxed);
        RunningHandler {
            running: &self.handlers_running,
        }
    }

    pub(crate) fn snapshot(&self) -> Metrics {
        Metrics {
            counts: std::array::from_fn(|index| self.counts[index].load(Ordering::Relaxed)),
            handlers_running: self.handlers_running.load(Ordering::Relaxed),
            lateness: self.lateness.snapshot(),
            handling: self.handling.snapshot(),
        }
    }
}

/// Counts a handler as running until this is dropped, when the handler has ended or was dropped.
pub(crate) struct RunningHandler<'a> {
    running: &'a AtomicU64,
}

impl Drop for RunningHandler<'_> {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_changes_only_its_own_count() {
        let meters = Meters::new();
        meters.add(Counter::Acked);
        meters.add_many(Counter::Promoted, 7);
        meters.add_many(Counter::Reaped, 0);
        let metrics = meters.snapshot();
        for (count, value) in metrics.counts() {
            let expected = match count {
                Counter::Acked => 1,
                Counter::Promoted => 7,
                _ => 0,
            };
            assert_eq!(value, expected, "{}", count.name());
        }
        meters.add(Counter::Acked);
        assert_eq!(
            metrics.count(Counter::Acked),
            1,
            "a snapshot does not change"
        );
    }

    #[test]
    fn a_failed_call_counts_by_kind_and_outcome() {
        let meters = Meters::new();
        meters.call_failed(&Error::new(ErrorKind::Unavailable, Applied::No, "loading"));
        meters.call_failed(&Error::new(ErrorKind::Timeout, Applied::Unknown, "lost"));
        meters.call_failed(&Error::new(
            ErrorKind::Server,
            Applied::Unknown,
            "script: x",
        ));
        let metrics = meters.snapshot();
        let counts = [
            Counter::CallFailed,
            Counter::CallUnknown,
            Counter::ServerError,
        ]
        .map(|count| metrics.count(count));
        assert_eq!(counts, [3, 2, 1]);
    }

    #[test]
    fn a_handler_counts_as_running_until_it_is_dropped() {
        let meters = Meters::new();
        let (first, second) = (meters.handler_runs(), meters.handler_runs());
        assert_eq!(meters.snapshot().handlers_running, 2);
        drop(first);
        assert_eq!(meters.snapshot().handlers_running, 1);
        drop(second);
        assert_eq!(meters.snapshot().handlers_running, 0);
    }
}

//! What is done through a queue's handle, in numbers: counted in atomics, read as snapshots.

mod count;
mod histogram;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use count::Count;
pub use histogram::{Bucket, Histogram};

use crate::error::{Applied, Error, ErrorKind};
use histogram::Recorder;

/// How many counts there are.
const COUNTS: usize = Count::ALL.len();

/// What a [`Queue`](crate::Queue) and its clones have done and seen since the queue was made by
/// [`Client::queue`](crate::Client::queue), the workers on it included: a snapshot, plain data.
///
/// Every number is of this process and this handle alone; what the queue in Redis has done is
/// [`Queue::stats`](crate::Queue::stats). Nothing is global: who asks the client for the queue again begins at zero, and so can
/// keep two workers apart. Counts only grow. The numbers are read one after another while work goes on, so that two of
/// them may differ by what happened in between. Counting cannot be switched off: it is a few relaxed additions a message.
///
/// An exporter prints what it finds: names, helps and buckets fit Prometheus as they are. `examples/metrics.rs` is one.
///
/// ```
/// use dueq::{Count, Metrics};
///
/// fn told(metrics: &Metrics) -> String {
///     let late_us = metrics.lateness.quantile_us(0.99).unwrap_or(0);
///     format!("{} acked, {} running, p99 {late_us} us late", metrics.count(Count::Acked), metrics.in_hand)
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    counts: [u64; COUNTS],
    /// Handlers that run just now.
    pub in_hand: u64,
    /// From when a message was due to when its handler started (by hand: to when the claim was answered), by Redis's clock as
    /// [`Delivery::started_us`](crate::Delivery::started_us) has it. A message that was tried again counts from when that try
    /// was due, one that was lost by a crash from its original time.
    pub lateness: Histogram,
    /// How long handlers ran: without the settle, and however they ended.
    pub handling: Histogram,
}

impl Metrics {
    /// One of the counts.
    pub fn count(&self, count: Count) -> u64 {
        self.counts[count as usize]
    }

    /// All of them, always in the same order.
    pub fn counts(&self) -> impl Iterator<Item = (Count, u64)> + '_ {
        Count::ALL.iter().map(|count| (*count, self.count(*count)))
    }
}

/// What is counted into. Relaxed: no count orders anything.
pub(crate) struct Meters {
    counts: [AtomicU64; COUNTS],
    in_hand: AtomicU64,
    lateness: Recorder,
    handling: Recorder,
}

impl Meters {
    pub(crate) fn new() -> Self {
        let counts = std::array::from_fn(|_| AtomicU64::new(0));
        Self {
            counts,
            in_hand: AtomicU64::new(0),
            lateness: Recorder::new(),
            handling: Recorder::new(),
        }
    }

    pub(crate) fn add(&self, count: Count) {
        self.add_many(count, 1);
    }

    pub(crate) fn add_many(&self, count: Count, more: u64) {
        if more > 0 {
            self.counts[count as usize].fetch_add(more, Ordering::Relaxed);
        }
    }

    /// A call to Redis ended so, whether it is repeated or not.
    pub(crate) fn call_failed(&self, error: &Error) {
        self.add(Count::CallFailed);
        if error.was_applied() == Applied::Unknown {
            self.add(Count::CallUnknown);
        }
        if error.kind() == ErrorKind::Server {
            self.add(Count::ServerError);
        }
    }

    pub(crate) fn late(&self, lateness: Duration) {
        self.lateness.record(lateness);
    }

    pub(crate) fn handled(&self, took: Duration) {
        self.handling.record(took);
    }

    /// A handler is running for as long as this is kept.
    pub(crate) fn hold(&self) -> InHand<'_> {
        self.in_hand.fetch_add(1, Ordering::Relaxed);
        InHand(&self.in_hand)
    }

    pub(crate) fn snapshot(&self) -> Metrics {
        Metrics {
            counts: std::array::from_fn(|place| self.counts[place].load(Ordering::Relaxed)),
            in_hand: self.in_hand.load(Ordering::Relaxed),
            lateness: self.lateness.snapshot(),
            handling: self.handling.snapshot(),
        }
    }
}

/// Dropped when a handler has ended, or was dropped itself.
pub(crate) struct InHand<'a>(&'a AtomicU64);

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_found_in_the_snapshot_and_nowhere_else() {
        let meters = Meters::new();
        meters.add(Count::Acked);
        meters.add_many(Count::Promoted, 7);
        meters.add_many(Count::Reaped, 0);
        let metrics = meters.snapshot();
        for (count, value) in metrics.counts() {
            let expected = match count {
                Count::Acked => 1,
                Count::Promoted => 7,
                _ => 0,
            };
            assert_eq!(value, expected, "{}", count.name());
        }
        meters.add(Count::Acked);
        assert_eq!(
            metrics.count(Count::Acked),
            1,
            "a snapshot stays what it is"
        );
    }

    #[test]
    fn a_failed_call_counts_by_what_is_known_of_it() {
        let meters = Meters::new();
        meters.call_failed(&Error::new(ErrorKind::Unavailable, Applied::No, "loading"));
        meters.call_failed(&Error::new(ErrorKind::Timeout, Applied::Unknown, "lost"));
        meters.call_failed(&Error::new(
            ErrorKind::Server,
            Applied::Unknown,
            "script: x",
        ));
        let metrics = meters.snapshot();
        let counts = [Count::CallFailed, Count::CallUnknown, Count::ServerError]
            .map(|count| metrics.count(count));
        assert_eq!(counts, [3, 2, 1]);
    }

    #[test]
    fn a_handler_is_in_hand_until_it_is_dropped() {
        let meters = Meters::new();
        let (first, second) = (meters.hold(), meters.hold());
        assert_eq!(meters.snapshot().in_hand, 2);
        drop(first);
        assert_eq!(meters.snapshot().in_hand, 1);
        drop(second);
        assert_eq!(meters.snapshot().in_hand, 0);
    }
}

//! Histograms of times: eight buckets per octave of microseconds, so that the width of a bucket is
//! at most an eighth of its lower bound.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The binary logarithm of the number of buckets in an octave.
const FINE: u32 = 3;
const IN_OCTAVE: u64 = 1 << FINE;
/// Times up to 2^40 µs (12.7 days) have a bucket; longer times share one more.
const OCTAVES: u32 = 40;
const BUCKETS: usize = (OCTAVES - FINE + 1) as usize * IN_OCTAVE as usize;

/// A snapshot of recorded times in microseconds, rounded up. It takes about 2.5 KiB.
///
/// ```
/// # fn example(queue: &dueq::Queue) {
/// let lateness = queue.metrics().lateness;
/// println!("{} messages, half of them at most {:?} us late", lateness.count(), lateness.quantile_us(0.5));
/// for bucket in lateness.buckets() {
///     println!("{} at most {} us", bucket.count, bucket.le_us);
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Box<[u64]>,
    sum_us: u64,
}

/// How many recorded times are at most `le_us`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// The upper bound in microseconds, inclusive.
    pub le_us: u64,
    /// How many times are at or below the bound: this bucket and all before it.
    pub count: u64,
}

impl Histogram {
    /// The number of recorded times.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of the recorded times in microseconds. It wraps around after half a million years.
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// The quantile for `part` (0 to 1) in microseconds; `None` if no time was recorded. It is the
    /// upper bound of a bucket: exact up to 16 µs, then at most an eighth too large and never too
    /// small. `u64::MAX` stands for more than 12.7 days.
    pub fn quantile_us(&self, part: f64) -> Option<u64> {
        let count = self.count();
        let rank = ((count as f64 * part.clamp(0.0, 1.0)).ceil() as u64).clamp(1, count.max(1));
        let mut below = 0;
        let index = self.counts.iter().position(|in_bucket| {
            below += in_bucket;
            below >= rank
        })?;
        Some(if index < BUCKETS {
            end_us(index)
        } else {
            u64::MAX
        })
    }

    /// The counts of times up to 1, 2, 4, ... 2^40 µs (12.7 days): always these 41 bounds,
    /// inclusive and cumulative like `le` of Prometheus. [`count`](Histogram::count) belongs to
    /// `+Inf`. An exporter may leave out any bucket.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        let (mut below, mut next) = (0, 0);
        (0..=OCTAVES).map(move |octave| {
            let le_us = 1 << octave;
            let end = bucket_of(le_us) + 1;
            below += self.counts[next..end].iter().sum::<u64>();
            next = end;
            Bucket {
                le_us,
                count: below,
            }
        })
    }

    /// The times recorded after `earlier`, a snapshot of the same histogram.
    ///
    /// ```no_run
    /// # async fn example(orders: dueq::Queue) {
    /// let before = orders.metrics().lateness;
    /// tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    /// println!("in the last minute: {:?}", orders.metrics().lateness.since(&before).quantile_us(0.99));
    /// # }
    /// ```
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let counts = self
            .counts
            .iter()
            .zip(earlier.counts.iter())
            .map(|(now, then)| now.saturating_sub(*then))
            .collect();
        Self {
            counts,
            sum_us: self.sum_us.wrapping_sub(earlier.sum_us),
        }
    }
}

/// Records times into buckets.
pub(crate) struct Recorder {
    counts: Box<[AtomicU64]>,
    sum_us: AtomicU64,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self {
            counts: (0..=BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            sum_us: AtomicU64::new(0),
        }
    }

    pub(crate) fn record(&self, time: Duration) {
        let us = u64::try_from(time.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX);
        self.counts[bucket_of(us)].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Histogram {
        // The sum is read first. A time recorded in between is then missing from the sum, but not
        // from the count.
        let sum_us = self.sum_us.load(Ordering::Relaxed);
        Histogram {
            counts: self
                .counts
                .iter()
                .map(|count| count.load(Ordering::Relaxed))
                .collect(),
            sum_us,
        }
    }
}

/// The bucket of a time. A bucket includes its upper bound, as in Prometheus: so 1 is subtracted
/// first.
fn bucket_of(us: u64) -> usize {
    let us = us.saturating_sub(1);
    if us < IN_OCTAVE {
        return us as usize;
    }
    let octave = us.ilog2() - FINE;
    let index = u64::from(octave + 1) * IN_OCTAVE + (us >> octave) % IN_OCTAVE;
    (index as usize).min(BUCKETS)
}

/// The upper bound of a bucket.
fn end_us(index: usize) -> u64 {
    let index = index as u64;
    match (index / IN_OCTAVE).checked_sub(1) {
        None => index + 1,
        Some(octave) => (IN_OCTAVE + index % IN_OCTAVE + 1) << octave,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times_us: impl IntoIterator<Item = u64>) -> Histogram {
        let recorder = Recorder::new();
        times_us
            .into_iter()
            .for_each(|us| recorder.record(Duration::from_micros(us)));
        recorder.snapshot()
    }

    #[test]
    fn buckets_are_adjacent_and_at_most_an_eighth_wide() {
        assert_eq!((bucket_of(0), bucket_of(1), bucket_of(2)), (0, 0, 1));
        for bucket in 0..BUCKETS {
            let end = end_us(bucket);
            assert_eq!(bucket_of(end), bucket, "{end}");
            assert_eq!(bucket_of(end + 1), bucket + 1, "{end}");
            if bucket > 0 {
                let begin = end_us(bucket - 1);
                assert!(
                    end > begin && (end - begin - 1) * 8 <= begin,
                    "{begin} to {end} is more than an eighth"
                );
            }
        }
        assert_eq!(end_us(BUCKETS - 1), 1 << OCTAVES);
        assert_eq!(
            (bucket_of(u64::MAX), bucket_of((1 << OCTAVES) + 1)),
            (BUCKETS, BUCKETS)
        );
    }

    #[test]
    fn quantiles_are_at_most_an_eighth_too_large() {
        fastrand::seed(7);
        let mut times: Vec<u64> = (0..5_000)
            .map(|_| 1 << fastrand::u32(0..39))
            .map(|most| fastrand::u64(0..most))
            .collect();
        let histogram = of(times.iter().copied());
        times.sort_unstable();
        for part in [0.0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let rank = ((times.len() as f64 * part).ceil() as usize).max(1);
            let (exact, found) = (times[rank - 1], histogram.quantile_us(part).expect("some"));
            assert!(
                found >= exact && found <= exact.max(1) + exact / 8 + 1,
                "{part}: {found} for {exact}"
            );
        }
        assert_eq!(histogram.sum_us(), times.iter().sum::<u64>());
        assert_eq!(of([]).quantile_us(0.5), None);
        assert_eq!(of([u64::MAX / 1_000]).quantile_us(0.5), Some(u64::MAX));
    }

    #[test]
    fn buckets_are_cumulative_and_include_their_bound() {
        let histogram = of([0, 1, 2, 3, 4, 5, 1 << 40, (1 << 40) + 1]);
        let buckets: Vec<_> = histogram.buckets().collect();
        assert_eq!(buckets.len(), 41);
        let at = |le_us| {
            buckets
                .iter()
                .find(|bucket| bucket.le_us == le_us)
                .map(|bucket| bucket.count)
        };
        assert_eq!(
            [at(1), at(2), at(4), at(8), at(1 << 39), at(1 << 40)],
            [2, 3, 5, 6, 6, 7].map(Some)
        );
        assert!(buckets.is_sorted_by_key(|bucket| (bucket.le_us, bucket.count)));
        assert_eq!(histogram.count(), 8);
    }

    #[test]
    fn fractions_of_a_microsecond_are_rounded_up() {
        let recorder = Recorder::new();
        recorder.record(Duration::from_nanos(4_001));
        let histogram = recorder.snapshot();
        assert_eq!(
            (histogram.sum_us(), histogram.quantile_us(1.0)),
            (5, Some(5))
        );
    }

    #[test]
    fn since_returns_what_was_recorded_in_between() {
        let recorder = Recorder::new();
        recorder.record(Duration::from_micros(10));
        let before = recorder.snapshot();
        recorder.record(Duration::from_micros(1_000));
        let between = recorder.snapshot().since(&before);
        assert_eq!(
            (between.count(), between.sum_us(), between.quantile_us(0.5)),
            (1, 1_000, Some(1_024))
        );
        assert_eq!(before.since(&before).quantile_us(0.5), None);
    }
}

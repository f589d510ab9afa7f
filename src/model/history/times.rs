//! A histogram of times with two buckets an octave. The reports of nodes and the records of the
//! history contain it.

/// The number of buckets. Bucket N counts the times of at most 2^(7 + N/2) µs; the last bucket also
/// counts all longer times.
pub(crate) const BUCKETS: usize = 68;
/// The binary logarithm of the upper bound of the first bucket: 128 µs.
const FIRST: u32 = 7;

/// How long something took, over many messages: how many times fell into each of 68 buckets, two
/// an octave.
///
/// ```
/// # dueq_testkit::doctest!(|orders| {
/// use dueq::inspect::HistoryResolution;
///
/// for point in orders.history(HistoryResolution::Minutes).await?.points {
///     if let Some(late_us) = point.lateness.quantile_us(0.99) {
///         println!("{} messages, 99 of 100 at most {late_us} us late", point.lateness.count());
///     }
/// }
/// # });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeHistogram {
    counts: Box<[u64; BUCKETS]>,
}

impl Default for TimeHistogram {
    fn default() -> Self {
        Self {
            counts: Box::new([0; BUCKETS]),
        }
    }
}

impl TimeHistogram {
    /// How many times were counted.
    pub fn count(&self) -> u64 {
        self.counts
            .iter()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The quantile for `part` (0 to 1) in microseconds; `None` if there are no times. It is the
    /// upper bound of a bucket: at least 128 µs, never too small, and at most 1.42 times too large.
    /// `u64::MAX` stands for more than 12.7 days.
    pub fn quantile_us(&self, part: f64) -> Option<u64> {
        let count = self.count();
        let rank = ((count as f64 * part.clamp(0.0, 1.0)).ceil() as u64).clamp(1, count.max(1));
        let mut below: u64 = 0;
        let bucket = self.counts.iter().position(|in_bucket| {
            below = below.saturating_add(*in_bucket);
            below >= rank
        })?;
        Some(end_us(bucket))
    }

    /// Adds the times of another histogram.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.counts.iter_mut().zip(other.counts.iter()) {
            *sum = sum.saturating_add(*more);
        }
    }

    /// The times that were counted since `earlier`, an earlier state of this histogram.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let mut rest = self.clone();
        for (count, before) in rest.counts.iter_mut().zip(earlier.counts.iter()) {
            *count = count.saturating_sub(*before);
        }
        rest
    }

    /// Reads the number of the first used bucket, followed by the counts from that bucket on. An
    /// empty text is a histogram without times.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut times = Self::default();
        let mut numbers = text.split(' ').filter(|number| !number.is_empty());
        let Some(first) = numbers.next() else {
            return Some(times);
        };
        let buckets = times.counts.get_mut(first.parse::<usize>().ok()?..)?;
        let counts: Vec<u64> = numbers.map(|n| n.parse().ok()).collect::<Option<_>>()?;
        buckets.get_mut(..counts.len())?.copy_from_slice(&counts);
        Some(times)
    }

    /// The text that `parse` reads.
    pub(crate) fn text(counts: &[u64; BUCKETS]) -> String {
        let Some(first) = counts.iter().position(|count| *count > 0) else {
            return String::new();
        };
        let end = counts.iter().rposition(|count| *count > 0).unwrap_or(first);
        let mut text = first.to_string();
        for count in &counts[first..=end] {
            text.push(' ');
            text.push_str(&count.to_string());
        }
        text
    }
}

/// The bucket of a time.
pub(crate) fn bucket_of(us: u64) -> usize {
    let Some(octave) = us
        .saturating_sub(1)
        .checked_ilog2()
        .filter(|it| *it >= FIRST)
    else {
        return 0;
    };
    // The time is above 2^octave; the upper half begins above 2^octave times the root of 2.
    let is_upper = u128::from(us) * u128::from(us) > 1 << (2 * octave + 1);
    let bucket = 2 * (octave - FIRST) as usize + 1 + usize::from(is_upper);
    bucket.min(BUCKETS - 1)
}

/// The longest time that falls into a bucket.
fn end_us(bucket: usize) -> u64 {
    if bucket + 1 >= BUCKETS {
        return u64::MAX;
    }
    let square: u128 = 1 << (2 * FIRST as usize + bucket);
    u64::try_from(square.isqrt()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times_us: impl IntoIterator<Item = u64>) -> TimeHistogram {
        let mut times = TimeHistogram::default();
        for us in times_us {
            times.counts[bucket_of(us)] += 1;
        }
        times
    }

    #[test]
    fn buckets_are_adjacent_and_an_octave_has_two() {
        assert_eq!(
            [0, 1, 128, 129, 181, 182, 256, 257].map(bucket_of),
            [0, 0, 0, 1, 1, 2, 2, 3]
        );
        for bucket in 0..BUCKETS - 1 {
            let end = end_us(bucket);
            assert_eq!(bucket_of(end), bucket, "{end}");
            assert_eq!(bucket_of(end + 1), bucket + 1, "{end}");
        }
        assert_eq!(end_us(BUCKETS - 2), 1 << 40);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_at_most_1_42_times_too_large() {
        fastrand::seed(5);
        let mut times: Vec<u64> = (0..5_000)
            .map(|_| fastrand::u64(128..1 << fastrand::u32(8..39)))
            .collect();
        let histogram = of(times.iter().copied());
        times.sort_unstable();
        for part in [0.0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let rank = ((times.len() as f64 * part).ceil() as usize).max(1);
            let (exact, found) = (times[rank - 1], histogram.quantile_us(part).expect("some"));
            assert!(
                found >= exact && found as f64 <= exact as f64 * 1.4143 + 1.0,
                "{part}: {found} for {exact}"
            );
        }
        assert_eq!(of([u64::MAX]).quantile_us(0.5), Some(u64::MAX));
        assert_eq!(of([]).quantile_us(0.5), None);
    }

    #[test]
    fn histogram_text_parses_back_to_the_same_counts() {
        for times in [of([]), of([0]), of([200, 200, 90_000]), of([1 << 50])] {
            let text = TimeHistogram::text(&times.counts);
            assert_eq!(TimeHistogram::parse(&text), Some(times), "{text:?}");
        }
        assert_eq!(TimeHistogram::text(&of([129, 300]).counts), "1 1 0 1");
        for bad in [
            "x",
            "68 1",
            "67 1 1",
            "0 -1",
            "1 99999999999999999999",
            "-1 1",
        ] {
            assert_eq!(TimeHistogram::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn histograms_add_up_and_subtract() {
        let (one, both) = (of([5, 1_000]), of([5, 1_000, 1_000, 90_000]));
        let rest = both.since(&one);
        assert_eq!(rest, of([1_000, 90_000]));
        assert_eq!(one.since(&both), of([]), "sums that were undone");
        let mut sum = one.clone();
        sum.add(&rest);
        assert_eq!(sum, both);
    }
}

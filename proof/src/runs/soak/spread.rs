//! The distribution of durations, in constant memory, because the measurement itself must not grow.

use anyhow::Result;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The longest duration that is distinguished, in microseconds: an hour.
const MOST_US: u64 = 3_600_000_000;
/// The number of significant digits of a duration that are kept.
const DIGITS: u8 = 3;

/// Durations in microseconds.
#[derive(Debug, Clone)]
pub(super) struct Spread(Histogram<u64>);

/// Durations as sent between processes: each with the number of its occurrences.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pairs(Vec<(u64, u64)>);

impl Spread {
    pub(super) fn new() -> Result<Self> {
        Ok(Self(Histogram::new_with_bounds(1, MOST_US, DIGITS)?))
    }

    pub(super) fn record(&mut self, us: u64) {
        self.0.saturating_record(us);
    }

    /// Returns the durations recorded since the last call.
    pub(super) fn take(&mut self) -> Pairs {
        let pairs = self
            .0
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
            .collect();
        self.0.reset();
        Pairs(pairs)
    }

    pub(super) fn add(&mut self, pairs: &Pairs) {
        for (us, times) in &pairs.0 {
            self.0.saturating_record_n(*us, *times);
        }
    }

    /// The duration in milliseconds that this share of all durations does not exceed; `None` if
    /// there are none.
    pub(super) fn quantile_ms(&self, share: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(share) as f64 / 1_000.0)
    }
}

impl Pairs {
    /// The distribution of only these durations.
    pub(super) fn spread(&self) -> Result<Spread> {
        let mut spread = Spread::new()?;
        spread.add(self);
        Ok(spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_sent_as_pairs_keeps_its_quantiles() {
        let mut spread = Spread::new().expect("bounds");
        assert_eq!(spread.quantile_ms(0.99), None);
        (1..=100).for_each(|ms| spread.record(ms * 1_000));
        let pairs = spread.take();
        assert_eq!(spread.quantile_ms(0.99), None);
        let line = serde_json::to_string(&pairs).expect("JSON");
        let again = serde_json::from_str::<Pairs>(&line)
            .expect("pairs")
            .spread()
            .expect("bounds");
        for (share, ms) in [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0)] {
            let found = again.quantile_ms(share).expect("a time");
            assert!((found - ms).abs() < ms / 500.0, "{found} for {ms}");
        }
    }

    #[test]
    fn duration_above_the_range_counts_as_the_longest() {
        let mut spread = Spread::new().expect("bounds");
        spread.record(u64::MAX);
        assert_eq!(spread.take().0.len(), 1);
    }
}

//! Percentiles and a histogram of times in microseconds.

use serde_json::{Map, Value, json};

/// The printed percentiles: name and share.
pub(super) const PERCENTILES: [(&str, f64); 6] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p999", 0.999),
    ("p9999", 0.9999),
    ("max", 1.0),
];
/// The end of the histogram's first bar. Each further bar ends at twice the time.
const FIRST_US: u64 = 250;

pub(super) struct Figures(Vec<u64>);

/// A bar of the histogram.
#[derive(Debug, PartialEq)]
pub(super) struct Bar {
    /// The upper end of the bar, in milliseconds.
    pub(super) up_to_ms: f64,
    pub(super) count: u64,
}

impl Figures {
    pub(super) fn new(mut us: Vec<u64>) -> Self {
        us.sort_unstable();
        Self(us)
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// The time in milliseconds that this share of the times does not exceed; 0 without times.
    pub(super) fn percentile_ms(&self, share: f64) -> f64 {
        let rank = (share * self.0.len() as f64).ceil().max(1.0) as usize;
        self.0.get(rank - 1).map_or(0.0, |us| *us as f64 / 1_000.0)
    }

    pub(super) fn json(&self) -> Value {
        Value::Object(
            PERCENTILES
                .iter()
                .map(|(name, share)| ((*name).to_owned(), json!(self.percentile_ms(*share))))
                .collect::<Map<_, _>>(),
        )
    }

    /// The bars from the shortest time to the longest, including empty bars between them.
    pub(super) fn histogram(&self) -> Vec<Bar> {
        let (mut bars, mut from, mut up_to_us) = (Vec::new(), 0, FIRST_US);
        while from < self.0.len() {
            let to = self.0.partition_point(|us| *us <= up_to_us);
            if to > 0 {
                bars.push(Bar {
                    up_to_ms: up_to_us as f64 / 1_000.0,
                    count: (to - from) as u64,
                });
            }
            (from, up_to_us) = (to, up_to_us.saturating_mul(2));
        }
        bars
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_is_the_time_of_its_rank() {
        let figures = Figures::new((1..=1_000).rev().map(|ms| ms * 1_000).collect());
        assert_eq!(figures.percentile_ms(0.5), 500.0);
        assert_eq!(figures.percentile_ms(0.999), 999.0);
        assert_eq!(figures.percentile_ms(1.0), 1_000.0);
        assert_eq!(Figures::new(vec![7]).percentile_ms(0.5), 0.007);
        assert_eq!(Figures::new(Vec::new()).percentile_ms(0.99), 0.0);
    }

    #[test]
    fn histogram_counts_each_time_once_without_empty_ends() {
        let bar = |up_to_ms, count| Bar { up_to_ms, count };
        let figures = Figures::new(vec![0, 250, 251, 2_000, 2_000]);
        assert_eq!(
            figures.histogram(),
            [bar(0.25, 2), bar(0.5, 1), bar(1.0, 0), bar(2.0, 2)]
        );
        assert_eq!(Figures::new(vec![900]).histogram(), [bar(1.0, 1)]);
        assert_eq!(Figures::new(Vec::new()).histogram(), []);
    }
}

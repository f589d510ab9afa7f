//! The rate of a queue: how many messages may start in some time.

use std::fmt;
use std::time::Duration;

/// The rate of a queue: at most `starts` claims in any window of this length, `burst` of them at
/// once. See [`QueueLimits::rate`](crate::QueueLimits::rate).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Rate {
    /// The most messages that start in a window.
    pub starts: u64,
    /// The length of a window, in whole milliseconds.
    pub window: Duration,
    /// The most messages that start at once.
    pub burst: u64,
}

impl Rate {
    /// Encodes the rate for the scripts: `STARTS/WINDOW_MS/BURST`.
    pub(crate) fn encode(self) -> String {
        format!("{}/{}/{}", self.starts, self.window.as_millis(), self.burst)
    }

    /// Reads the text of a rate. `None` if a script would ignore the text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('/').map(|number| match number.as_bytes() {
            [b'1'..=b'9', ..] => number.parse::<u64>().ok(),
            _ => None,
        });
        let mut next = || numbers.next().flatten();
        let (starts, window_ms, burst) = (next()?, next()?, next()?);
        let rate = Self {
            starts,
            window: Duration::from_millis(window_ms),
            burst,
        };
        (numbers.next().is_none() && burst <= starts).then_some(rate)
    }

    /// The burst of a rate that was set without one: 1. Above 200 starts per second it is the
    /// starts of 5 ms, so that the queue opens at most 200 times per second.
    pub(crate) fn default_burst(starts: u64, window: Duration) -> u64 {
        let of_5_ms = u128::from(starts) * 5 / window.as_millis().max(1);
        u64::try_from(of_5_ms)
            .unwrap_or(starts)
            .clamp(1, starts.max(1))
    }

    /// The part of the rate that each partition gets; `None` if that is less than one start.
    pub(crate) fn of_partition(self, partitions: u64) -> Option<Self> {
        let starts = self.starts / partitions;
        let burst = (self.burst / partitions).max(1);
        (starts > 0).then_some(Self {
            starts,
            burst,
            ..self
        })
    }

    /// The rate of a queue whose partitions have this rate each. If each partition has a burst of
    /// 1, the queue's own burst is not known; it is taken as 1.
    pub(crate) fn of_queue(self, partitions: u64) -> Self {
        let burst = match self.burst {
            1 => 1,
            burst => burst.saturating_mul(partitions),
        };
        Self {
            starts: self.starts.saturating_mul(partitions),
            burst,
            ..self
        }
    }

    /// The sum of both rates, in the window of `self`.
    pub(crate) fn plus(self, other: Self) -> Self {
        let scaled =
            u128::from(other.starts) * self.window.as_millis() / other.window.as_millis().max(1);
        Self {
            starts: self
                .starts
                .saturating_add(u64::try_from(scaled).unwrap_or(u64::MAX)),
            burst: self.burst.saturating_add(other.burst),
            ..self
        }
    }
}

impl fmt::Display for Rate {
    /// Formats the rate such as `100 in 1s, 10 at once`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} in {:?}, {} at once",
            self.starts, self.window, self.burst
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn rate(starts: u64, burst: u64) -> Rate {
        Rate {
            starts,
            window: SECOND,
            burst,
        }
    }

    #[test]
    fn rate_text_parses_only_within_its_ranges() {
        assert_eq!(Rate::parse("100/1000/10"), Some(rate(100, 10)));
        assert_eq!(rate(100, 10).encode(), "100/1000/10");
        for text in [
            "", "1", "1/1", "1/1/1/1", "0/1/1", "1/0/1", "1/1/0", "1/1/2", "+1/1/1", "01/1/1",
            "a/1/1",
        ] {
            assert_eq!(Rate::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn default_burst_is_the_starts_of_5_ms() {
        for (starts, burst) in [(1, 1), (200, 1), (399, 1), (400, 2), (500, 2), (10_000, 50)] {
            assert_eq!(Rate::default_burst(starts, SECOND), burst, "{starts}");
        }
        assert_eq!(Rate::default_burst(10, Duration::from_millis(1)), 10);
    }

    #[test]
    fn shares_of_partitions_never_exceed_the_rate() {
        assert_eq!(rate(103, 9).of_partition(4), Some(rate(25, 2)));
        assert_eq!(rate(3, 1).of_partition(4), None);
        assert_eq!(rate(25, 2).of_queue(4), rate(100, 8));
        assert_eq!(rate(25, 1).of_queue(4), rate(100, 1));
        let slower = Rate {
            window: 2 * SECOND,
            ..rate(50, 1)
        };
        assert_eq!(rate(25, 1).plus(slower), rate(50, 2));
    }
}

//! The back-off before the next attempt after a failure. Pure: the caller provides the random
//! number.

use std::time::Duration;

use crate::error::Error;

/// The delays between the attempts at a message.
///
/// The delay after attempt *n* is `first * 2^(n-1)`, at most `max`, less a random part of up to
/// half of it, so that messages that failed together are not retried together.
///
/// A `Retry` does not limit the number of attempts. The message does
/// ([`Push::max_attempts`](crate::Push::max_attempts)), or else the queue
/// ([`QueueLimits::max_attempts`](crate::QueueLimits::max_attempts)): 20 unless set.
///
/// ```
/// use dueq::Retry;
/// use std::time::Duration;
///
/// let retry = Retry::exponential(Duration::from_secs(1), Duration::from_secs(60))?;
/// assert_eq!(retry.delay(1, 0.0), Duration::from_secs(1));
/// assert_eq!(retry.delay(3, 0.0), Duration::from_secs(4));
/// assert_eq!(retry.delay(3, 1.0), Duration::from_secs(2));
/// assert_eq!(retry.delay(100, 0.0), Duration::from_secs(60));
/// # Ok::<(), dueq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    first: Duration,
    max: Duration,
    doubling: bool,
}

impl Retry {
    /// Doubling delays from `first` up to `max`, with jitter. Refused if `first` is zero or longer
    /// than `max`.
    ///
    /// `first` is the longest first delay: jitter takes off up to half of each delay. With a
    /// `first` of 200 ms the first delay is 100 to 200 ms, the second 200 to 400 ms. Only
    /// [`fixed`](Retry::fixed) has no jitter.
    pub fn exponential(first: Duration, max: Duration) -> Result<Self, Error> {
        if first.is_zero() || first > max {
            return Err(Error::invalid(format!(
                "retry delays from {first:?} to {max:?}: the first must be above zero and not above the last"
            )));
        }
        Ok(Self {
            first,
            max,
            doubling: true,
        })
    }

    /// One delay for all retries, without jitter. Zero is allowed.
    pub fn fixed(delay: Duration) -> Self {
        Self {
            first: delay,
            max: delay,
            doubling: false,
        }
    }

    /// The delay after attempt `attempt` (1 is the first); `chance` from 0 to 1 is the share of the
    /// jitter that is taken off.
    pub fn delay(&self, attempt: u32, chance: f64) -> Duration {
        if !self.doubling {
            return self.first;
        }
        let doublings = attempt.saturating_sub(1).min(31);
        let full = self.first.saturating_mul(1 << doublings).min(self.max);
        full.mul_f64(1.0 - 0.5 * chance.clamp(0.0, 1.0))
    }
}

impl Default for Retry {
    /// Exponential delays from 1 s up to 1 h.
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            max: Duration::from_secs(3600),
            doubling: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_attempt_number_or_random_number_overflows_the_delay() {
        let retry = Retry::exponential(Duration::from_secs(1), Duration::MAX).expect("valid");
        for attempt in [0, 1, 2, 31, 32, 33, u32::MAX] {
            for chance in [f64::NAN, -1.0, 0.0, 0.5, 1.0, 2.0] {
                let chance = if chance.is_nan() { 0.0 } else { chance };
                assert!(
                    retry.delay(attempt, chance) >= Duration::from_millis(500),
                    "{attempt} {chance}"
                );
            }
        }
    }

    #[test]
    fn zero_and_inverted_delays_are_refused() {
        assert!(Retry::exponential(Duration::ZERO, Duration::from_secs(1)).is_err());
        assert!(Retry::exponential(Duration::from_secs(2), Duration::from_secs(1)).is_err());
    }
}

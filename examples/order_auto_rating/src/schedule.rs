//! Converts the time of the orders to the time of the replay, without side effects.

use std::time::{Duration, Instant};

use crate::input::WINDOW_S;

/// The replay runs `speed` times faster than the orders came in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    start: Instant,
    first_s: i64,
    speed: u64,
}

impl Schedule {
    /// Maps the orders' time `first_s` to `start`.
    pub(crate) fn new(start: Instant, first_s: i64, speed: u64) -> Self {
        Self {
            start,
            first_s,
            speed,
        }
    }

    pub(crate) fn start(&self) -> Instant {
        self.start
    }

    /// The instant of the orders' time `at_s`. A time before the first delivery is now.
    pub(crate) fn instant(&self, at_s: i64) -> Instant {
        self.start + self.scaled(at_s - self.first_s)
    }

    /// Due time of the rating of an order delivered at this time: 48 h later, rounded up to a
    /// millisecond.
    pub(crate) fn due(&self, delivered_s: i64) -> Instant {
        let delay_ms = self.scaled(WINDOW_S).as_nanos().div_ceil(1_000_000);
        self.instant(delivered_s)
            + Duration::from_millis(u64::try_from(delay_ms).unwrap_or(u64::MAX))
    }

    /// The orders' time at this instant.
    pub(crate) fn time_s(&self, now: Instant) -> i64 {
        let passed = now.saturating_duration_since(self.start).as_nanos() * u128::from(self.speed)
            / 1_000_000_000;
        self.first_s
            .saturating_add(i64::try_from(passed).unwrap_or(i64::MAX))
    }

    fn scaled(&self, seconds: i64) -> Duration {
        let nanos = u128::try_from(seconds).unwrap_or(0) * 1_000_000_000 / u128::from(self.speed);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_days_at_a_million_are_173_ms_and_at_one_two_days() {
        let start = Instant::now();
        assert_eq!(
            Schedule::new(start, 1_000, 1_000_000).due(1_000) - start,
            Duration::from_millis(173)
        );
        assert_eq!(
            Schedule::new(start, 1_000, 1).due(1_000) - start,
            Duration::from_secs(172_800)
        );
        assert_eq!(
            Schedule::new(start, 1_000, 172_800).due(1_000) - start,
            Duration::from_secs(1),
            "nothing to round"
        );
        assert_eq!(
            Schedule::new(start, 1_000, 1_000_000_000).due(1_000) - start,
            Duration::from_millis(1)
        );
    }

    #[test]
    fn instants_and_times_agree() {
        let start = Instant::now();
        let schedule = Schedule::new(start, 1_000, 500);
        assert_eq!(schedule.instant(1_250) - start, Duration::from_millis(500));
        assert_eq!(schedule.time_s(start + Duration::from_millis(500)), 1_250);
        assert_eq!(schedule.instant(-5), start);
        assert_eq!(schedule.time_s(start), 1_000);
    }
}

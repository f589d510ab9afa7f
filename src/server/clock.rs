//! An estimate of the Redis server's clock from the timestamps of replies. Nothing here reads the
//! wall clock of this machine.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most by which two clocks drift apart: one part in 1,000. Quartz drifts less; a clock that is
/// being slewed may drift as much.
const DRIFT: i64 = 1_000;

/// The estimate of the server's clock.
///
/// A reply to a call that was sent at `sent` and answered at `received` bounds the difference of
/// the two clocks. Both the earlier bounds, loosened by the drift since, and the new reply's bounds
/// are valid, so their intersection is valid too: a slow reply never makes the estimate of a fast
/// one worse. If they do not intersect, the server's clock was set, and only the new bounds count.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    bounds: Mutex<Option<Bounds>>,
}

/// The bounds of the server's time minus the time since `start`, at `taken`, in microseconds.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    least: i64,
    most: i64,
    taken: Instant,
}

impl Bounds {
    /// The bounds at another instant, later or earlier. Drift loosens them in both directions.
    fn loosened(self, at: Instant) -> Self {
        let distance = at.max(self.taken).duration_since(at.min(self.taken));
        let drift = i64::try_from(distance.as_micros()).unwrap_or(i64::MAX) / DRIFT + 1;
        Self {
            least: self.least.saturating_sub(drift),
            most: self.most.saturating_add(drift),
            taken: at,
        }
    }

    fn offset_us(self) -> i64 {
        self.least
            .saturating_add(self.most.saturating_sub(self.least) / 2)
    }
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            bounds: Mutex::new(None),
        }
    }

    /// Corrects the estimate with a reply's timestamp.
    pub(crate) fn observe(&self, sent: Instant, received: Instant, server_us: i64) {
        let new = Bounds {
            least: server_us.saturating_sub(self.since_start_us(received)),
            most: server_us.saturating_sub(self.since_start_us(sent)),
            taken: received,
        };
        let mut bounds = self.lock();
        let common = bounds.map(|old| old.loosened(received)).map(|old| Bounds {
            least: old.least.max(new.least),
            most: old.most.min(new.most),
            taken: received,
        });
        *bounds = Some(
            common
                .filter(|common| common.least <= common.most)
                .unwrap_or(new),
        );
    }

    /// The server's time at `instant`, in Unix microseconds; `None` before the first reply.
    pub(crate) fn server_us(&self, instant: Instant) -> Option<i64> {
        let bounds = (*self.lock())?;
        Some(
            self.since_start_us(instant)
                .saturating_add(bounds.offset_us()),
        )
    }

    /// The earliest possible [`server_us`](Self::server_us).
    pub(crate) fn earliest_us(&self, instant: Instant) -> Option<i64> {
        let bounds = (*self.lock())?.loosened(instant);
        Some(self.since_start_us(instant).saturating_add(bounds.least))
    }

    /// The latest possible [`server_us`](Self::server_us).
    pub(crate) fn latest_us(&self, instant: Instant) -> Option<i64> {
        let bounds = (*self.lock())?.loosened(instant);
        Some(self.since_start_us(instant).saturating_add(bounds.most))
    }

    /// The instant at which the server's clock will show this Unix millisecond; `None` before the
    /// first reply, or if that instant is further away than this machine can tell.
    pub(crate) fn instant_of_ms(&self, server_ms: u64) -> Option<Instant> {
        let bounds = (*self.lock())?;
        let us = i64::try_from(server_ms)
            .ok()?
            .checked_mul(1_000)?
            .checked_sub(bounds.offset_us())?;
        self.start
            .checked_add(Duration::from_micros(u64::try_from(us.max(0)).ok()?))
    }

    fn since_start_us(&self, instant: Instant) -> i64 {
        i64::try_from(instant.saturating_duration_since(self.start).as_micros()).unwrap_or(i64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Bounds>> {
        self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock_at(start: Instant) -> Clock {
        Clock {
            start,
            bounds: Mutex::new(None),
        }
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_fastest_round_trip_determines_the_estimate() {
        let start = Instant::now();
        let clock = clock_at(start);
        clock.observe(start, start + 10 * MS, 1_000_000);
        assert_eq!(clock.server_us(start), Some(995_000));
        clock.observe(start + 20 * MS, start + 22 * MS, 1_016_000);
        assert_eq!(clock.server_us(start), Some(995_000));
        clock.observe(start + 30 * MS, start + 130 * MS, 1_030_000);
        assert_eq!(
            clock.server_us(start),
            Some(995_000),
            "a slow sample that agrees changes nothing"
        );
    }

    #[test]
    fn a_slow_reply_does_not_spoil_a_good_estimate() {
        let start = Instant::now();
        let clock = clock_at(start);
        // The true offset is 1,000,000, near the upper end of the first sample's 2 ms and the lower
        // end of the second's 100.
        clock.observe(start, start + 2 * MS, 1_000_200);
        clock.observe(start + 10 * MS, start + 110 * MS, 1_109_900);
        let estimate = clock.server_us(start + 120 * MS).expect("two samples");
        assert!(estimate.abs_diff(1_120_000) < 1_000, "{estimate}");
    }

    #[test]
    fn a_clock_that_was_set_is_noticed_at_once() {
        let start = Instant::now();
        let clock = clock_at(start);
        clock.observe(start, start + MS, 5_000_000_000);
        clock.observe(start + 10 * MS, start + 60 * MS, 1_000_000_000);
        assert_eq!(clock.server_us(start + 35 * MS), Some(1_000_000_000));
    }

    #[test]
    fn old_bounds_give_way_to_new_ones_as_clocks_drift() {
        let start = Instant::now();
        let clock = clock_at(start);
        clock.observe(start, start + MS, 1_000_000);
        // Two seconds later the server's clock is 1.5 ms ahead of where it should be.
        let later = start + Duration::from_secs(2);
        clock.observe(later, later + MS, 3_001_500);
        let estimate = clock.server_us(later).expect("two samples");
        assert!((3_000_500..=3_001_500).contains(&estimate), "{estimate}");
    }

    #[test]
    fn earliest_time_allows_for_a_slewing_clock() {
        let start = Instant::now();
        let clock = clock_at(start);
        // The server's clock is being slewed forward by 0.08 %: 10 s later it is 8 ms further than
        // this machine's.
        let later = start + Duration::from_secs(10);
        clock.observe(later, later, 1_000_000 + 10_008_000);
        let earliest = clock.earliest_us(start).expect("a sample");
        assert!(
            earliest <= 1_000_000,
            "the server's clock showed 1,000,000 us at the start, not {earliest}"
        );
    }

    #[test]
    fn server_ms_maps_to_a_local_instant() {
        let start = Instant::now();
        let clock = clock_at(start);
        assert_eq!(clock.instant_of_ms(7), None);
        clock.observe(start + 10 * MS, start + 10 * MS, 1_000_000);
        assert_eq!(clock.instant_of_ms(1_005), Some(start + 15 * MS));
        assert_eq!(clock.instant_of_ms(0), Some(start), "what is past is now");
        assert_eq!(clock.instant_of_ms(u64::MAX), None);
    }

    #[test]
    fn no_timestamp_of_a_server_causes_an_overflow() {
        let start = Instant::now();
        for claimed in [
            [i64::MIN, i64::MAX],
            [i64::MAX, i64::MIN],
            [i64::MIN, i64::MIN],
            [i64::MAX, i64::MAX],
        ] {
            let clock = clock_at(start);
            for (number, server_us) in (0..).zip(claimed) {
                clock.observe(
                    start + number * 10 * MS,
                    start + (number * 10 + 1) * MS,
                    server_us,
                );
                assert!(clock.server_us(start + 100 * MS).is_some());
                assert!(clock.earliest_us(start + 100 * MS).is_some());
                let _ = (
                    clock.instant_of_ms(0),
                    clock.instant_of_ms(u64::MAX),
                    clock.instant_of_ms(9_223_372_036_854_775),
                );
            }
        }
    }
}

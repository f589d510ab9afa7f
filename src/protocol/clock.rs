//! An estimate of the Redis server's clock from the replies' timestamps. Nothing reads the wall clock of this machine.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the best sample is kept before any newer one replaces it: clocks drift by some 50 ppm, so 50 us.
const SAMPLE_LIFE: Duration = Duration::from_secs(1);

/// The server's clock as seen from here.
///
/// A reply that was asked for at `sent` and came at `received` says what the time was somewhere between the two. The
/// fastest round trip of the last second gives the tightest answer, and is kept; a sample that contradicts it (its
/// interval does not contain the estimate) means that the server's clock was set, and replaces it at once.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    sample: Mutex<Option<Sample>>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    /// Server time less time since `start`, in microseconds.
    offset_us: i64,
    round_trip_us: i64,
    taken: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), sample: Mutex::new(None) }
    }

    /// Takes in a reply's timestamp.
    pub(crate) fn observe(&self, sent: Instant, received: Instant, server_us: i64) {
        let (sent_us, received_us) = (self.since_start_us(sent), self.since_start_us(received));
        let (least, most) = (server_us - received_us, server_us - sent_us);
        let new = Sample { offset_us: least + (most - least) / 2, round_trip_us: most - least, taken: received };
        let mut sample = self.lock();
        let keep = sample.is_some_and(|old| {
            (least..=most).contains(&old.offset_us)
                && old.round_trip_us < new.round_trip_us
                && received.saturating_duration_since(old.taken) < SAMPLE_LIFE
        });
        if !keep {
            *sample = Some(new);
        }
    }

    /// The server's time at `instant`, in Unix microseconds; nothing before the first reply.
    pub(crate) fn server_us(&self, instant: Instant) -> Option<i64> {
        let sample = (*self.lock())?;
        Some(self.since_start_us(instant) + sample.offset_us)
    }

    /// The instant at which the server's clock will show this Unix millisecond; `None` before the first reply, or if that
    /// instant is further away than this machine can tell.
    pub(crate) fn instant_of_ms(&self, server_ms: u64) -> Option<Instant> {
        let sample = (*self.lock())?;
        let us = i64::try_from(server_ms).ok()?.checked_mul(1_000)? - sample.offset_us;
        self.start.checked_add(Duration::from_micros(u64::try_from(us.max(0)).ok()?))
    }

    fn since_start_us(&self, instant: Instant) -> i64 {
        i64::try_from(instant.saturating_duration_since(self.start).as_micros()).unwrap_or(i64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Sample>> {
        self.sample.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock_at(start: Instant) -> Clock {
        Clock { start, sample: Mutex::new(None) }
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_fastest_round_trip_wins() {
        let start = Instant::now();
        let clock = clock_at(start);
        clock.observe(start, start + 10 * MS, 1_000_000);
        assert_eq!(clock.server_us(start), Some(995_000));
        clock.observe(start + 20 * MS, start + 22 * MS, 1_016_000);
        assert_eq!(clock.server_us(start), Some(995_000));
        clock.observe(start + 30 * MS, start + 130 * MS, 1_030_000);
        assert_eq!(clock.server_us(start), Some(995_000), "a slow sample that agrees changes nothing");
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
    fn an_old_sample_gives_way() {
        let start = Instant::now();
        let clock = clock_at(start);
        clock.observe(start, start + MS, 1_000_000);
        let later = start + Duration::from_secs(2);
        clock.observe(later, later + 4 * MS, 3_002_200);
        assert_eq!(clock.server_us(later + 2 * MS), Some(3_002_200));
    }

    #[test]
    fn moments_and_instants_agree() {
        let start = Instant::now();
        let clock = clock_at(start);
        assert_eq!(clock.instant_of_ms(7), None);
        clock.observe(start + 10 * MS, start + 10 * MS, 1_000_000);
        assert_eq!(clock.instant_of_ms(1_005), Some(start + 15 * MS));
        assert_eq!(clock.instant_of_ms(0), Some(start), "what is past is now");
        assert_eq!(clock.instant_of_ms(u64::MAX), None);
    }
}

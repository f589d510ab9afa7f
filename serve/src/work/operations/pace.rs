//! The pace of an operation, and how long it waits for Redis.

use std::time::{Duration, Instant};

/// The most messages of a step: changing 100 occupies Redis for about 1 ms.
const MAX_STEP: u64 = 100;
/// The steps per second of an operation, if its pace gives steps of 1 to `MAX_STEP` messages.
const STEPS_A_SECOND: u64 = 10;
/// How long an operation keeps trying while Redis is unreachable.
const PATIENCE: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Spreads messages over time: the pause after a step is in proportion to its messages.
pub(super) struct Pace {
    per_second: u64,
    next: Instant,
}

impl Pace {
    pub(super) fn new(per_second: u64, now: Instant) -> Self {
        Self {
            per_second: per_second.max(1),
            next: now,
        }
    }

    /// The most messages of the next step.
    pub(super) fn step(&self) -> usize {
        let step = (self.per_second / STEPS_A_SECOND).clamp(1, MAX_STEP);
        usize::try_from(step).unwrap_or(1)
    }

    /// The instant at which the next step may begin, after a step with this number of messages.
    /// Lost time is not made up for: no burst follows a pause of Redis.
    pub(super) fn after(&mut self, messages: u64, now: Instant) -> Instant {
        let earned = Duration::from_secs(messages) / u32::try_from(self.per_second).unwrap_or(1);
        // The duration of the step itself is part of the pause.
        self.next = (self.next + earned).max(now);
        self.next
    }
}

/// Measures how long Redis has not answered an operation.
#[derive(Default)]
pub(super) struct Patience {
    since: Option<Instant>,
    tries: u32,
}

impl Patience {
    /// Called after a failed call: the pause before the next call, or `None` to give up.
    pub(super) fn pause(&mut self, now: Instant) -> Option<Duration> {
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) >= PATIENCE {
            return None;
        }
        let pause = FIRST_PAUSE * 2_u32.pow(self.tries.min(10));
        self.tries += 1;
        Some(pause.min(LONGEST_PAUSE))
    }

    /// Called after a successful call: resets the patience.
    pub(super) fn renew(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pace_is_kept_while_steps_are_slow() {
        for per_second in [1, 7, 1_000, 100_000] {
            let begin = Instant::now();
            let (mut pace, mut now, mut done) = (Pace::new(per_second, begin), begin, 0);
            for step in 0..1_000_u64 {
                let messages = pace.step() as u64;
                assert!((1..=MAX_STEP).contains(&messages));
                done += messages;
                // Some of the steps are slow.
                now += Duration::from_micros(step % 7 * 100);
                now = now.max(pace.after(messages, now));
                let seconds = (now - begin).as_secs_f64();
                assert!(
                    done as f64 <= per_second as f64 * seconds + 1.0,
                    "{done} messages in {seconds} s at {per_second} a second"
                );
            }
        }
    }

    #[test]
    fn no_burst_follows_a_pause_of_redis() {
        let begin = Instant::now();
        let mut pace = Pace::new(10, begin);
        let late = begin + Duration::from_secs(60);
        assert_eq!(pace.after(1, late), late);
        let next = pace.after(1, late);
        assert_eq!(next, late + Duration::from_millis(100));
    }

    #[test]
    fn operation_gives_up_after_a_minute_of_failures() {
        let (mut patience, begin) = (Patience::default(), Instant::now());
        let mut now = begin;
        while let Some(pause) = patience.pause(now) {
            assert!((FIRST_PAUSE..=LONGEST_PAUSE).contains(&pause));
            now += pause;
        }
        let waited = now - begin;
        assert!(
            waited >= PATIENCE && waited < PATIENCE + LONGEST_PAUSE,
            "{waited:?}"
        );
        patience.renew();
        assert_eq!(patience.pause(now), Some(FIRST_PAUSE));
    }
}

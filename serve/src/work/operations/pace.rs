//! How fast an operation goes, and how long it waits for Redis.

use std::time::{Duration, Instant};

/// The most messages of a step: 100 occupy Redis for about 1 ms.
const MAX_STEP: u64 = 100;
/// How many steps a second a slow operation makes at least, one message each.
const STEPS_A_SECOND: u64 = 10;
/// For how long an operation goes on trying while Redis is away.
const PATIENCE: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Spreads messages over time: a step is followed by the pause that its messages earn.
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

    /// How many messages the next step has at most.
    pub(super) fn step(&self) -> usize {
        let step = (self.per_second / STEPS_A_SECOND).clamp(1, MAX_STEP);
        usize::try_from(step).unwrap_or(1)
    }

    /// When the next step may begin, after one that dealt with so many messages. Time that was lost
    /// is not made up for: a pause of Redis is followed by no burst.
    pub(super) fn after(&mut self, messages: u64, now: Instant) -> Instant {
        let earned = Duration::from_secs(messages) / u32::try_from(self.per_second).unwrap_or(1);
        // The time that the step itself took counts.
        self.next = (self.next + earned).max(now);
        self.next
    }
}

/// How long an operation waits while Redis does not answer.
#[derive(Default)]
pub(super) struct Patience {
    since: Option<Instant>,
    tries: u32,
}

impl Patience {
    /// A call failed: the pause before the next one, or `None` if there shall be none.
    pub(super) fn pause(&mut self, now: Instant) -> Option<Duration> {
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) >= PATIENCE {
            return None;
        }
        let pause = FIRST_PAUSE * 2_u32.pow(self.tries.min(10));
        self.tries += 1;
        Some(pause.min(LONGEST_PAUSE))
    }

    /// A call succeeded.
    pub(super) fn renew(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pace_is_kept_whatever_the_steps_take() {
        for per_second in [1, 7, 1_000, 100_000] {
            let begin = Instant::now();
            let (mut pace, mut now, mut done) = (Pace::new(per_second, begin), begin, 0);
            for step in 0..1_000_u64 {
                let messages = pace.step() as u64;
                assert!((1..=MAX_STEP).contains(&messages));
                done += messages;
                // Some steps are slow.
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
    fn lost_time_is_not_made_up_for() {
        let begin = Instant::now();
        let mut pace = Pace::new(10, begin);
        let late = begin + Duration::from_secs(60);
        assert_eq!(pace.after(1, late), late);
        let next = pace.after(1, late);
        assert_eq!(next, late + Duration::from_millis(100));
    }

    #[test]
    fn patience_ends_after_a_minute_of_failures() {
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

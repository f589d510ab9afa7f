//! `--throttle-queue`: how long a queue is closed when its receiver asks for a break.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::StatusCode;

/// The first and the longest break of a receiver that answers 429 without Retry-After.
const GUESSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// The current break of each queue. A receiver may refuse many concurrent requests; all these
/// answers belong to one break.
#[derive(Default)]
pub(super) struct Breaks(Mutex<HashMap<String, Break>>);

struct Break {
    until: Instant,
    /// The length of the next break, unless the receiver names one.
    guess: Duration,
}

/// The break that one answer asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) length: Duration,
    /// Whether this answer begins a new break of the queue.
    pub(super) is_new: bool,
}

impl Breaks {
    /// The break that this answer asks for, if it does. A 503 without Retry-After asks for none: it
    /// is an ordinary failure.
    pub(super) fn asked(
        &self,
        queue: &str,
        status: StatusCode,
        retry_after: Option<Duration>,
        now: Instant,
    ) -> Option<Asked> {
        let mut breaks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if status.is_success() {
            if let Some(found) = breaks.get_mut(queue) {
                found.guess = GUESSES[0];
            }
            return None;
        }
        match status.as_u16() {
            429 => {}
            503 if retry_after.is_some() => {}
            _ => return None,
        }
        let found = breaks.entry(queue.to_owned()).or_insert(Break {
            until: now,
            guess: GUESSES[0],
        });
        let left = found.until.saturating_duration_since(now);
        let length = match retry_after {
            Some(length) => length,
            None if left > Duration::ZERO => left,
            None => {
                let length = found.guess;
                found.guess = GUESSES[1].min(length * 2);
                length
            }
        };
        found.until = found.until.max(now + length);
        Some(Asked {
            length,
            is_new: left == Duration::ZERO,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: StatusCode = StatusCode::TOO_MANY_REQUESTS;
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn breaks_without_retry_after_double_until_a_success() {
        let (breaks, mut now) = (Breaks::default(), Instant::now());
        let mut lengths = Vec::new();
        for _ in 0..8 {
            let asked = breaks.asked("q", BUSY, None, now).expect("a break");
            assert!(asked.is_new);
            lengths.push(asked.length.as_secs());
            now += asked.length;
        }
        assert_eq!(lengths, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(breaks.asked("q", StatusCode::OK, None, now), None);
        let asked = breaks.asked("q", BUSY, None, now).expect("a break");
        assert_eq!(asked.length, SECOND);
    }

    #[test]
    fn answers_during_a_break_belong_to_it() {
        let (breaks, start) = (Breaks::default(), Instant::now());
        let asked = |after: Option<Duration>, ms| {
            let now = start + Duration::from_millis(ms);
            breaks.asked("q", BUSY, after, now).expect("a break")
        };
        let ms = Duration::from_millis;
        let (first, later) = (true, false);
        for (after, at, length, is_new) in [
            (None, 0, SECOND, first),
            (None, 300, ms(700), later),
            (Some(2 * SECOND), 400, 2 * SECOND, later),
            (None, 2_300, ms(100), later),
            (None, 2_400, 2 * SECOND, first),
        ] {
            assert_eq!(asked(after, at), Asked { length, is_new }, "at {at} ms");
        }
        let other = breaks.asked("other", BUSY, None, start + ms(300));
        assert!(other.is_some_and(|asked| asked.is_new && asked.length == SECOND));
    }

    #[test]
    fn only_429_and_503_with_retry_after_ask_for_a_break() {
        let breaks = Breaks::default();
        for (code, after, is_break) in [
            (429, None, true),
            (429, Some(SECOND), true),
            (503, Some(SECOND), true),
            (503, None, false),
            (500, Some(SECOND), false),
            (404, None, false),
            (400, None, false),
        ] {
            let status = StatusCode::from_u16(code).expect("a status");
            let asked = breaks.asked("q", status, after, Instant::now());
            assert_eq!(asked.is_some(), is_break, "{code} {after:?}");
        }
    }
}

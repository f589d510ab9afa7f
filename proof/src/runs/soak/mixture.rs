//! The messages of a soak: a fixed mixture, so that every code path is always in use.

use std::time::Duration;

use dueq_bench_driver::due_of;

/// The percentage of messages that are due at once. The delays of the others are spread evenly
/// between these bounds.
const IMMEDIATE: u64 = 20;
pub(super) const LEAST_DELAY: Duration = Duration::from_secs(1);
const MOST_DELAY: Duration = Duration::from_secs(30);
/// The percentage of messages that fail at their first attempt.
const RETRIED: u64 = 3;
/// The percentage of delayed messages that are cancelled; below, of those that are rescheduled, and
/// how long after the push both happen.
const CANCELLED: u64 = 3;
const RESCHEDULED: u64 = 3;
pub(super) const LATER: Duration = Duration::from_millis(500);
/// The delay after which a retried message is due again.
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// What happens to a message. Its payload has the letter of its mark after the due time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Acked,
    Retried,
    Cancelled,
    /// Moved so that it is due this long after the push, in milliseconds.
    Rescheduled(u64),
}

/// A message that is not pushed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Planned {
    /// How long after the push the message is due; 0 for at once.
    pub(super) delay_ms: u64,
    pub(super) fate: Fate,
}

/// Generates the messages; every run gets equal ones.
pub(super) struct Mixture {
    chance: fastrand::Rng,
    /// The divisor of all delays.
    haste: u64,
}

impl Mixture {
    pub(super) fn new(haste: u64) -> Self {
        Self {
            chance: fastrand::Rng::with_seed(5),
            haste,
        }
    }

    fn delay_ms(&mut self) -> u64 {
        let ms = |delay: Duration| delay.as_millis() as u64;
        self.chance.u64(ms(LEAST_DELAY)..=ms(MOST_DELAY)) / self.haste
    }

    pub(super) fn draw(&mut self) -> Planned {
        let immediate = self.chance.u64(..100) < IMMEDIATE;
        let delay_ms = if immediate { 0 } else { self.delay_ms() };
        let fate = match self.chance.u64(..100) {
            n if n < RETRIED => Fate::Retried,
            n if n < RETRIED + CANCELLED && !immediate => Fate::Cancelled,
            n if n < RETRIED + CANCELLED + RESCHEDULED && !immediate => {
                Fate::Rescheduled(self.delay_ms())
            }
            _ => Fate::Acked,
        };
        Planned { delay_ms, fate }
    }
}

/// How a handler must treat a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Immediate,
    /// The message is due at once, and its first attempt fails.
    ImmediateRetried,
    Delayed,
    Retried,
    Cancelled,
    Rescheduled,
}

const MARKS: [(Mark, u8); 6] = [
    (Mark::Immediate, b'i'),
    (Mark::ImmediateRetried, b'j'),
    (Mark::Delayed, b'd'),
    (Mark::Retried, b'r'),
    (Mark::Cancelled, b'c'),
    (Mark::Rescheduled, b'm'),
];
/// The index in the payload of the letter that stands for the mark: it follows the 13 digits of the
/// due time.
const PLACE: usize = 13;

impl Planned {
    fn mark(self) -> Mark {
        match self.fate {
            Fate::Retried if self.delay_ms == 0 => Mark::ImmediateRetried,
            Fate::Retried => Mark::Retried,
            Fate::Cancelled => Mark::Cancelled,
            Fate::Rescheduled(_) => Mark::Rescheduled,
            Fate::Acked if self.delay_ms == 0 => Mark::Immediate,
            Fate::Acked => Mark::Delayed,
        }
    }

    /// A payload of 100 bytes, for a message with this due time.
    pub(super) fn payload(self, due_ms: u64) -> Vec<u8> {
        let mut payload = dueq_bench_driver::Message::new(Some(due_ms)).payload;
        let letter = MARKS
            .iter()
            .find(|(mark, _)| *mark == self.mark())
            .map_or(b'?', |(_, letter)| *letter);
        payload[PLACE] = letter;
        payload
    }
}

/// Parses a payload: the due time at the push, in Unix milliseconds, and how to treat the message.
pub(super) fn read(payload: &[u8]) -> Option<(u64, Mark)> {
    let (mark, _) = MARKS
        .iter()
        .find(|(_, letter)| payload.get(PLACE) == Some(letter))?;
    Some((due_of(payload)?, *mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_contains_the_due_time_and_the_mark() {
        for (delay_ms, fate, mark) in [
            (0, Fate::Acked, Mark::Immediate),
            (0, Fate::Retried, Mark::ImmediateRetried),
            (5, Fate::Acked, Mark::Delayed),
            (5, Fate::Retried, Mark::Retried),
            (5, Fate::Cancelled, Mark::Cancelled),
            (5, Fate::Rescheduled(9), Mark::Rescheduled),
        ] {
            let payload = Planned { delay_ms, fate }.payload(1_800_000_000_123);
            assert_eq!(payload.len(), 100);
            assert_eq!(read(&payload), Some((1_800_000_000_123, mark)));
        }
        assert_eq!(read(&dueq_bench_driver::Message::new(None).payload), None);
        assert_eq!(read(b"1"), None);
    }

    #[test]
    fn mixture_has_every_fate_at_its_percentage() {
        let mut mixture = Mixture::new(1);
        let drawn: Vec<_> = (0..100_000).map(|_| mixture.draw()).collect();
        let count =
            |of: &dyn Fn(&Planned) -> bool| drawn.iter().filter(|planned| of(planned)).count();
        let immediate = count(&|planned| planned.delay_ms == 0);
        assert!((19_000..21_000).contains(&immediate), "{immediate}");
        for (fate, share) in [
            (count(&|planned| planned.fate == Fate::Retried), 3_000),
            (count(&|planned| planned.fate == Fate::Cancelled), 2_400),
            (
                count(&|planned| matches!(planned.fate, Fate::Rescheduled(_))),
                2_400,
            ),
        ] {
            assert!(fate.abs_diff(share) < share / 5, "{fate} of {share}");
        }
        assert!(
            drawn.iter().all(
                |planned| planned.delay_ms == 0 || (1_000..=30_000).contains(&planned.delay_ms)
            )
        );
        let mut hasty = Mixture::new(10);
        assert!((0..1_000).all(|_| hasty.draw().delay_ms <= 3_000));
        assert_eq!(Mixture::new(1).draw(), Mixture::new(1).draw());
    }
}

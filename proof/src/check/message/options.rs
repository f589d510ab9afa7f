//! The options of a message, as pushed and as granted.

use crate::check::record::{Conflict, number_of};

/// What the checker compares of the options.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Options {
    /// A number that differs if the other words of the options differ.
    pub(crate) number: u32,
    /// The message's own limit; 0: it has the queue's.
    pub(crate) max_attempts: u32,
    pub(crate) conflict: Conflict,
    pub(crate) expiry: Expiry,
    /// What the message uses of a rate.
    pub(crate) cost: u32,
}

impl Options {
    pub(crate) fn read(words: &str) -> Self {
        let (mut limit, mut parent, mut of_rate) = (String::new(), "", String::new());
        let (mut max_attempts, mut cost) = (0, 1);
        let mut conflict = Conflict::Keep;
        for word in words.split(' ') {
            match word.split_once('=').unwrap_or((word, "")) {
                ("max_attempts", number) => {
                    max_attempts = number.parse().unwrap_or(0);
                    limit = format!("max_attempts={max_attempts}");
                }
                ("traceparent", _) => parent = word,
                ("on_conflict", "reschedule") => conflict = Conflict::Reschedule,
                ("on_conflict", "replace") => conflict = Conflict::Replace,
                ("cost", number) => {
                    cost = number.parse().unwrap_or(1);
                    of_rate = format!("cost={cost}");
                }
                _ => {}
            }
        }
        let remaining = format!("{limit} {parent} {of_rate}");
        Self {
            number: number_of(remaining.trim()),
            max_attempts,
            conflict,
            expiry: Expiry::read(words),
            cost,
        }
    }
}

/// When a message expires, and whether it is then dropped or dead. Packed into eight bytes, because
/// a run has tens of millions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Expiry(u64);

const DROPS: u64 = 1;
const RELATIVE: u64 = 2;

impl Expiry {
    /// The message never expires.
    pub(crate) const NONE: Self = Self(0);

    fn read(words: &str) -> Self {
        let (mut found, mut drops) = (Self::NONE, 0);
        for word in words.split(' ') {
            match word.split_once('=').unwrap_or((word, "")) {
                ("expires", time) => {
                    let relative = if time.starts_with('+') { RELATIVE } else { 0 };
                    let ms: u64 = time.trim_start_matches('+').parse().unwrap_or(0);
                    found = Self(ms << 2 | relative);
                }
                ("on_expire", "drop") => drops = DROPS,
                _ => {}
            }
        }
        if found == Self::NONE {
            found
        } else {
            Self(found.0 | drops)
        }
    }

    /// Whether the expired message is dropped. If not, it becomes dead.
    pub(crate) fn drops(self) -> bool {
        self.0 & DROPS != 0
    }

    /// Whether the expiry counts from the due time.
    pub(crate) fn is_relative(self) -> bool {
        self.0 & RELATIVE != 0
    }

    /// The last ms at which an attempt may start, for this due time.
    pub(crate) fn deadline_ms(self, due_ms: u64) -> Option<u64> {
        let from_ms = if self.is_relative() { due_ms } else { 0 };
        (self != Self::NONE).then_some((self.0 >> 2).saturating_add(from_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_is_relative_to_the_due_time_or_absolute() {
        let deadline = |words| Options::read(words).expiry.deadline_ms(1_000);
        assert_eq!(deadline("max_attempts=2"), None);
        assert_eq!(deadline("expires=+50"), Some(1_050));
        assert_eq!(deadline("expires=5000 on_expire=drop"), Some(5_000));
        let drops = |words| Options::read(words).expiry.drops();
        assert!(drops("on_expire=drop expires=+50") && !drops("expires=+50"));
    }

    #[test]
    fn order_of_option_words_does_not_matter() {
        let options = Options::read("cost=3 expires=+5 max_attempts=2");
        assert_eq!(options, Options::read("max_attempts=2 expires=+5 cost=3"));
        assert_eq!((options.cost, options.max_attempts), (3, 2));
        assert_ne!(options.number, Options::read("max_attempts=2").number);
    }
}

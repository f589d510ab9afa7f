//! Checks for every reader of this crate. Each check is a function of bytes and panics if an
//! invariant does not hold.
//!
//! A test runs the checks on the lines of `fuzz/corpus` and on mutations of them; `make proof
//! NAME=fuzz` runs them for longer.

mod message;
mod rate;
mod time;

pub use self::message::message;
pub use self::rate::path_id;
pub use self::rate::rate;
pub use self::rate::schedule;
pub use self::time::{delay, hours, moment};
use crate::Error;

/// Panics if an invariant does not hold for these bytes.
pub type Check = fn(&[u8]);

/// A check, by the name of its lines in `fuzz/corpus`.
pub const CHECKS: [(&str, Check); 7] = [
    ("delay", delay),
    ("hours", hours),
    ("message", message),
    ("moment", moment),
    ("path_id", path_id),
    ("rate", rate),
    ("schedule", schedule),
];

/// Whether a terminal obeys the character instead of showing it, by a list independent of the
/// tested code: control characters, characters that change the direction of writing, other line
/// ends, and annotations.
pub(crate) fn steers(c: char) -> bool {
    const INVISIBLE: &str = "\u{61c}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\
        \u{2066}\u{2067}\u{2068}\u{2069}\u{206a}\u{206b}\u{206c}\u{206d}\u{206e}\u{206f}\u{fff9}\u{fffa}\u{fffb}";
    c.is_control() || INVISIBLE.contains(c)
}

/// Checks the text of a refusal by the library: it is not empty, its length is bounded, and it
/// cannot control a terminal.
fn check_reason(reason: &str, given: &str) {
    assert!(
        !reason.is_empty() && reason.len() < 400 + 8 * given.len(),
        "{reason:?}"
    );
    assert!(!reason.contains(steers), "{reason:?}");
}

/// Checks the text of a refusal: it is not empty, its length is bounded for any input, and it
/// cannot control a terminal.
fn check_error(error: &Error) {
    let text = error.to_string();
    assert!(!error.reason().is_empty(), "{error:?}");
    assert!(
        text.len() < 6_000 && text.chars().count() < 1_100,
        "{text:?}"
    );
    assert!(!text.contains(steers), "{text:?}");
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_and_its_mutations_hold() {
        for (name, check) in super::CHECKS {
            dueq_testkit::fuzz(name, check);
        }
    }
}

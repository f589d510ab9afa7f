//! Checks of everything in the program that parses input from outside, as functions of bytes that
//! panic if an invariant does not hold. The crate dueq-input has checks of its own.
//!
//! A test runs the checks on the lines of `fuzz/corpus` and on mutations of them; `make proof
//! NAME=fuzz` runs them for longer.

mod ndjson;
mod redisson;
mod text;

pub use self::ndjson::ndjson;
pub use self::redisson::redisson;
pub use self::redisson::schedules;
pub use self::text::shown;
use crate::shown::steers;

/// Panics if an invariant does not hold for these bytes.
pub type Check = fn(&[u8]);

/// A check, by the name of its lines in `fuzz/corpus`.
pub const CHECKS: [(&str, Check); 4] = [
    ("ndjson", ndjson),
    ("schedules", schedules),
    ("shown", shown),
    ("redisson", redisson),
];

/// Checks the text of a refusal: it is not empty, its length is bounded, and it cannot control a
/// terminal.
fn check_reason(reason: &str, given: &str) {
    assert!(
        !reason.is_empty() && reason.len() < 400 + 8 * given.len(),
        "{reason:?}"
    );
    assert!(!reason.contains(steers), "{reason:?}");
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

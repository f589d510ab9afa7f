//! Checks for everything that the server reads from a request or a file. Each check is a function
//! of bytes and panics if an invariant does not hold. The crate dueq-input has the checks of ids
//! and messages.
//!
//! A test runs the checks on the lines of `fuzz/corpus` and on mutations of them; `make proof
//! NAME=fuzz` runs them for longer.

mod files;
mod heads;
mod paths;

pub use self::files::{http_pattern, http_tokens};
pub use self::heads::http_head;
pub use self::paths::http_operation;
pub use self::paths::{http_path, http_query};
pub use crate::routes::checks::{
    http_claim, http_cursor, http_extensions, http_lines, http_settlements,
};

/// Panics if an invariant does not hold for these bytes.
pub type Check = fn(&[u8]);

/// A check, by the name of its lines in `fuzz/corpus`.
pub const CHECKS: [(&str, Check); 11] = [
    ("http_claim", http_claim),
    ("http_cursor", http_cursor),
    ("http_extensions", http_extensions),
    ("http_head", http_head),
    ("http_lines", http_lines),
    ("http_operation", http_operation),
    ("http_path", http_path),
    ("http_pattern", http_pattern),
    ("http_query", http_query),
    ("http_settlements", http_settlements),
    ("http_tokens", http_tokens),
];

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_and_its_mutations_hold() {
        for (name, check) in super::CHECKS {
            dueq_testkit::fuzz(name, check);
        }
    }
}

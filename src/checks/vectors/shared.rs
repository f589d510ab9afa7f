//! What the vectors have in common: the clock, and errors and outcomes as JSON.

use std::fmt::Debug;

use serde_json::{Value, json};

use crate::error::Error;

/// The server's clock in replies, in Unix microseconds.
pub(super) const NOW_US: i64 = 1_700_000_000_000_250;

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Adds the members of one object to another.
pub(super) fn with(mut line: Value, more: Value) -> Value {
    if let (Value::Object(line), Value::Object(more)) = (&mut line, more) {
        line.extend(more);
    }
    line
}

/// What each client says of an error, beside its text.
pub(super) fn fault(error: &Error) -> Value {
    json!({
        "kind": snake(&format!("{:?}", error.kind())),
        "applied": snake(&format!("{:?}", error.was_applied())),
        "code": error.code(),
        "retryable": error.is_retryable(),
    })
}

pub(super) fn snake(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(c.to_lowercase());
    }
    text
}

/// An outcome such as `Exists(Dead)` or `Moved(7)` as a word and its detail.
pub(super) fn outcome<T: Debug>(result: Result<T, Error>) -> Value {
    let text = match result {
        Ok(outcome) => format!("{outcome:?}"),
        Err(error) => return json!({"error": fault(&error)}),
    };
    let (word, detail) = text
        .trim_end_matches(')')
        .split_once('(')
        .unwrap_or((&text, ""));
    let line = json!({"outcome": snake(word)});
    match (detail.parse::<u64>(), detail) {
        (_, "") => line,
        (Ok(ms), _) => with(line, json!({"ms": ms})),
        (Err(_), state) => with(line, json!({"state": snake(state)})),
    }
}

//! Writes and checks the vectors of `clients/vectors`: what this library makes of inputs that each
//! client library must treat alike. A vector is one line of JSON with the input and the result.
//!
//! `DUEQ_WRITE_VECTORS=1 cargo test --package dueq --lib vectors` writes the files again.

mod produced;
mod replies;
mod routes;

use std::fmt::Debug;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::error::Error;

const NOW_US: i64 = 1_700_000_000_000_250;

#[test]
fn client_vectors_are_what_this_library_does() {
    let files = [
        ("routing", routes::routing()),
        ("keys", routes::keys()),
        ("maps", routes::maps()),
        ("errors", produced::errors()),
        ("messages", produced::messages()),
        ("results", produced::results()),
        ("verdicts", produced::verdicts()),
        ("replies", replies::replies()),
    ];
    for (name, lines) in files {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("clients/vectors");
        let path = folder.join(format!("{name}.jsonl"));
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        if std::env::var_os("DUEQ_WRITE_VECTORS").is_some() {
            std::fs::write(&path, &text).expect("the vectors can be written");
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stored == text,
            "{path:?} is out of date: set DUEQ_WRITE_VECTORS=1, and run every client"
        );
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Adds the members of one object to another.
fn with(mut line: Value, more: Value) -> Value {
    if let (Value::Object(line), Value::Object(more)) = (&mut line, more) {
        line.extend(more);
    }
    line
}

/// What each client says of an error, beside its text.
fn fault(error: &Error) -> Value {
    json!({
        "kind": snake(&format!("{:?}", error.kind())),
        "applied": snake(&format!("{:?}", error.was_applied())),
        "code": error.code(),
        "retryable": error.is_retryable(),
    })
}

fn snake(name: &str) -> String {
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
fn outcome<T: Debug>(result: Result<T, Error>) -> Value {
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

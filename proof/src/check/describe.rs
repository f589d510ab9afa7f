//! Violations in words.

use std::fmt::Write;

use super::record::{Record, What};

/// The most records that a description shows: the last ones.
const TOLD: usize = 6;

/// Describes the records of an id up to the violation.
pub(super) fn story(name: &str, records: &[Record], unknown: &[Record]) -> String {
    let mut story = name.to_owned();
    let skipped = records.len().saturating_sub(TOLD);
    if skipped > 0 {
        let _ = write!(story, " | {skipped} more before");
    }
    for record in records.get(skipped..).unwrap_or_default() {
        let _ = write!(story, " | {}", words(record));
    }
    if !unknown.is_empty() {
        let _ = write!(story, " | without an answer: {}", unknown.len());
        for record in unknown.iter().take(TOLD) {
            let _ = write!(story, ", {} of process {}", what(record), record.process);
        }
    }
    story
}

fn words(record: &Record) -> String {
    if matches!(record.what, What::Left { .. }) {
        return what(record);
    }
    format!(
        "seq {} at {} us, process {}: {}",
        record.seq(),
        record.now_us,
        record.process,
        what(record)
    )
}

fn what(record: &Record) -> String {
    match record.what {
        What::Push { push, verdict } => {
            format!(
                "push of version {}, {} bytes, {}: {verdict:?}",
                push.version, push.bytes, push.time
            )
        }
        What::Claim {
            token,
            due_ms,
            lease_ms,
            version,
            attempt,
            bytes,
            ..
        } => {
            format!(
                "claim by {token:016x} for {lease_ms} ms: version {version}, {bytes} bytes, due {due_ms}, attempt {attempt}"
            )
        }
        What::Settle {
            verb,
            verdict,
            token,
            time,
            answered_ms,
        } => {
            format!("{verb:?} {time} by {token:016x}: {verdict:?} {answered_ms}")
        }
        What::Change {
            verb,
            verdict,
            time,
            expected,
            answered_ms,
            ..
        } => match expected.due_ms() {
            Some(expected) => format!("{verb:?} {time} if {expected}: {verdict:?} {answered_ms}"),
            None => format!("{verb:?} {time}: {verdict:?} {answered_ms}"),
        },
        What::Move { step, .. } => format!("it {step:?}"),
        What::ReadState(seen) => format!("get: {seen:?}"),
        What::Held {
            token,
            due_ms,
            version,
            attempt,
            bytes,
            ..
        } => {
            format!(
                "held by {token:016x}: version {version}, {bytes} bytes, due {due_ms}, attempt {attempt}"
            )
        }
        What::Left {
            state,
            failures,
            crashes,
            time_ms,
        } => {
            format!("left {state:?} at {time_ms} with {failures} failures and {crashes} crashes")
        }
    }
}

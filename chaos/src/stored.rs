//! The answer of `get` in one line, the same from the script's reply and from the library's result.

use dueq::Stored;
use dueq::harness::Reply;

use crate::payload;

/// `IS <state> <time ms> <failures> <crashes> <version> <bytes> <options>`, or `ABSENT`.
pub fn of_library(id: &str, stored: Option<&Stored>) -> String {
    let Some(stored) = stored else {
        return "ABSENT".to_owned();
    };
    let limit = stored
        .max_attempts
        .map(|limit| format!("max_attempts={limit}"));
    let trace = stored
        .trace_parent
        .as_ref()
        .map(|trace| format!("traceparent={trace}"));
    let options: Vec<_> = limit.into_iter().chain(trace).collect();
    let numbers = [
        stored.time_ms,
        stored.failures.into(),
        stored.crashes.into(),
    ];
    words(
        id,
        stored.state.as_str(),
        numbers,
        &stored.payload,
        &options.join(" "),
    )
}

/// None if this is no answer of `get`.
pub(crate) fn of_reply(id: &str, fields: &[Reply]) -> Option<String> {
    if fields.is_empty() {
        return Some("ABSENT".to_owned());
    }
    let field = |name: &str| {
        let mut pairs = fields.chunks_exact(2);
        pairs
            .find(|pair| pair[0] == Reply::Bytes(name.into()))
            .map(|pair| &pair[1])
    };
    let bytes = |name| match field(name) {
        Some(Reply::Bytes(bytes)) => Some(bytes),
        _ => None,
    };
    let number = |name| match field(name) {
        Some(Reply::Int(number)) => u64::try_from(*number).ok(),
        _ => None,
    };
    let numbers = [number("time_ms")?, number("failures")?, number("crashes")?];
    let text = |name| Some(String::from_utf8_lossy(bytes(name)?));
    Some(words(
        id,
        &text("state")?,
        numbers,
        bytes("payload")?,
        &text("options")?,
    ))
}

fn words(
    id: &str,
    state: &str,
    [time_ms, failures, crashes]: [u64; 3],
    payload: &[u8],
    options: &str,
) -> String {
    let (version, bytes) = (payload::version_of(id, payload), payload.len());
    format!("IS {state} {time_ms} {failures} {crashes} {version} {bytes} {options}")
        .trim_end()
        .to_owned()
}

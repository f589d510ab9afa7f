//! Formats an answer of `get` as one line, identical for the script's reply and the library's
//! result.

use dueq::harness::Reply;
use dueq::{OnExpire, StoredMessage};

use crate::payload;

/// Formats the library's result: `IS <state> <time ms> <failures> <crashes> <version> <bytes>
/// <options>`, or `ABSENT`.
pub fn of_library(id: &str, stored: Option<&StoredMessage>) -> String {
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
    let expires = match (stored.expires_after_ms, stored.expires_at_ms) {
        (Some(after_ms), _) => Some(format!("expires=+{after_ms}")),
        (None, at_ms) => at_ms.map(|at_ms| format!("expires={at_ms}")),
    };
    let drops = (stored.on_expire == OnExpire::Drop).then(|| "on_expire=drop".to_owned());
    let cost = (stored.cost > 1).then(|| format!("cost={}", stored.cost));
    let options: Vec<_> = [limit, trace, expires, drops, cost]
        .into_iter()
        .flatten()
        .collect();
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

/// Formats the script's reply; `None` if it is not an answer of `get`.
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
        &as_pushed(&text("options")?),
    ))
}

/// The options without words that scripts add.
pub(crate) fn as_pushed(options: &str) -> String {
    const ADDED: [&str; 3] = ["crashes=", "expires_by=", "snoozes="];
    let is_pushed = |word: &&str| !ADDED.iter().any(|added| word.starts_with(added));
    let pushed: Vec<_> = options.split(' ').filter(is_pushed).collect();
    pushed.join(" ")
}

/// The state of a message as a get answers it.
pub(crate) fn words(
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

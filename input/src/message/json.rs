//! Payloads in JSON, and the errors of its reader.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::Fields;
use crate::Error;

/// How deep arrays and objects of a payload may nest. Most readers of JSON refuse deeper ones.
pub const MAX_DEPTH: usize = 128;

/// The error of the JSON reader: the field, if its value is wrong, and where it is. Most objects are
/// a single line.
pub(super) fn unreadable(text: &[u8], error: &serde_json::Error) -> Error {
    let (reason, line, column) = (without_place(error), error.line(), error.column());
    let error = Error::new(match line {
        0 | 1 => format!("{reason} (column {column})"),
        _ => format!("{reason} (line {line}, column {column})"),
    });
    match wrong_field(text, &reason) {
        Some(field) => error.of(field),
        None => error,
    }
}

/// The field with the wrong value, which the JSON reader does not name: an object with this field
/// alone is refused for the same reason.
fn wrong_field(text: &[u8], reason: &str) -> Option<String> {
    let refusal = |name: &str, value: &str| {
        let name = serde_json::Value::from(name);
        let alone = format!("{{{name}:{value}}}");
        let read = serde_json::from_str::<Fields<'_>>(&alone);
        read.err().map(|error| without_place(&error))
    };
    let values: BTreeMap<String, &RawValue> = serde_json::from_slice(text).ok()?;
    let mut wrong = values.into_iter().filter(|(name, value)| {
        let is_known = refusal(name, "null").is_none();
        is_known && refusal(name, value.get()).is_some_and(|other| other == reason)
    });
    wrong.next().map(|(name, _)| name)
}

fn without_place(error: &serde_json::Error) -> String {
    let mut text = error.to_string();
    if let Some(end) = text.find(" at line ") {
        text.truncate(end);
    }
    text
}

/// The characters of a string; the text of any other JSON value.
pub(super) fn bytes_of(payload: &RawValue) -> Result<Vec<u8>, Error> {
    let json = payload.get();
    if json.starts_with('"') {
        return serde_json::from_str(json)
            .map(String::into_bytes)
            .map_err(|error| Error::new(without_place(&error)).of("payload"));
    }
    let depth = depth(json.as_bytes());
    if depth > MAX_DEPTH {
        let reason = format!(
            "arrays and objects nest {depth} deep; at most {MAX_DEPTH} are possible: write the payload as a string"
        );
        return Err(Error::new(reason).of("payload"));
    }
    Ok(json.as_bytes().to_vec())
}

/// How deep arrays and objects nest in valid JSON.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut is_escaped) = (0_usize, 0, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

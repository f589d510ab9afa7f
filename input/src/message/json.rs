//! Payloads in JSON.

use serde_json::value::RawValue;

use crate::{Error, unreadable};

/// How deep arrays and objects of a payload may nest. Most readers of JSON refuse deeper ones.
pub const MAX_DEPTH: usize = 128;

/// The characters of a string; the text of any other JSON value.
pub(super) fn bytes_of(payload: &RawValue) -> Result<Vec<u8>, Error> {
    let json = payload.get();
    if json.starts_with('"') {
        return serde_json::from_str(json)
            .map(String::into_bytes)
            .map_err(|error| unreadable(json.as_bytes(), &error).of("payload"));
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

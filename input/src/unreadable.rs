//! Explains why JSON or a parameter cannot be read, in words of its writer. The parsers' own errors
//! name Rust types, and do not name the field.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::Error;

/// Why the text is not the expected JSON: names the field if its value is wrong, or else where the
/// parser stopped.
pub fn unreadable(text: &[u8], error: &serde_json::Error) -> Error {
    if text.trim_ascii().is_empty() {
        return Error::new("there is no JSON: the text is empty");
    }
    let whole = error.to_string();
    let reason = whole.split(" at line ").next().unwrap_or_default();
    let is_json = is_json(text);
    // Serde treats a value of another type where a word is expected as a syntax error.
    let reason = match reason {
        "expected value" if is_json => "a text is expected".into(),
        reason => in_plain_words(reason),
    };
    let (line, column) = (error.line(), error.column());
    match field_at(text, line, column).filter(|_| is_json) {
        Some(field) => Error::new(reason).of(field),
        None if line > 1 => Error::new(format!("{reason} (line {line}, column {column})")),
        None => Error::new(format!("{reason} (column {column})")),
    }
}

/// Whether the text is valid JSON, whatever it contains.
pub fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()
}

/// The field in whose value the parser stopped. Most objects are a single line.
fn field_at(text: &[u8], line: usize, column: usize) -> Option<String> {
    let before = text.split(|byte| *byte == b'\n').take(line.checked_sub(1)?);
    let at = before.map(|line| line.len() + 1).sum::<usize>() + column;
    let values: BTreeMap<String, &RawValue> = serde_json::from_slice(text).ok()?;
    let is_plain = |name: &str| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let mut values = values.into_iter().filter(|(name, value)| {
        let start = value.get().as_ptr() as usize - text.as_ptr() as usize;
        is_plain(name) && (start..=start + value.get().len()).contains(&at)
    });
    values.next().map(|(name, _)| name)
}

/// Serde's reason without its words for Rust types.
pub fn in_plain_words(reason: &str) -> Cow<'_, str> {
    let wrong = ["invalid type: ", "invalid value: "];
    let wrong = wrong.iter().find_map(|start| reason.strip_prefix(start));
    if let Some((given, expected)) = wrong.and_then(|rest| rest.rsplit_once(", expected ")) {
        let (given, expected) = (is_given(given), is_expected(expected));
        return format!("{given} is given, and {expected} is expected").into();
    }
    if let Some(rest) = reason.strip_prefix("unknown variant ") {
        return format!("unknown word {rest}").into();
    }
    match reason {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "a whole number is expected"
        }
        "number too large to fit in target type" | "number out of range" => {
            "the number is too large"
        }
        "provided string was not `true` or `false`" => "true or false is expected",
        "expected value" => "there is no JSON value here: write texts in quotes",
        "expected ident" => "true, false and null are the only words without quotes",
        "EOF while parsing a value"
        | "EOF while parsing a list"
        | "EOF while parsing an object"
        | "EOF while parsing a string" => "the JSON ends too early",
        "lone leading surrogate in hex escape" | "unexpected end of hex escape" => {
            "\\u escapes of a character beyond U+FFFF go in pairs, and half of one is missing"
        }
        "trailing characters" => "more text follows the JSON",
        "recursion limit exceeded" => "lists and objects nest too deep",
        other => other,
    }
    .into()
}

fn is_given(found: &str) -> Cow<'_, str> {
    let (kind, value) = found.split_once(' ').unwrap_or((found, ""));
    match (kind, found) {
        ("string", _) => format!("the text {value}").into(),
        ("integer", _) => format!("the number {value}").into(),
        ("floating", _) => format!("the number {}", value.trim_start_matches("point ")).into(),
        ("boolean", _) => value.into(),
        (_, "sequence") => "a list".into(),
        (_, "map") => "an object".into(),
        (_, "null") => "null".into(),
        _ => "something else".into(),
    }
}

fn is_expected(expected: &str) -> &str {
    match expected {
        "u64" | "usize" => "a whole number from 0",
        "u32" => "a whole number from 0 to 4294967295",
        "u8" | "u16" | "i32" | "i64" => "a whole number",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        "a string" | "a borrowed string" | "variant identifier" | "string or map" => "a text",
        other if other.starts_with("struct ") => "an object",
        other if other.starts_with("enum ") => "a text",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Word {
        One,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only refusals are looked at")]
    struct Fields {
        count: Option<u64>,
        small: Option<u32>,
        is_so: Option<bool>,
        word: Option<Word>,
        list: Option<Vec<u64>>,
    }

    #[test]
    fn reasons_name_the_field_and_no_types_of_rust() {
        for (text, expected) in [
            ("", "there is no JSON: the text is empty"),
            ("{", "the JSON ends too early (column 1)"),
            (
                "{\"count\": }",
                "there is no JSON value here: write texts in quotes (column 11)",
            ),
            (
                "{\"count\": \"5\"}",
                "count: the text \"5\" is given, and a whole number from 0 is expected",
            ),
            (
                "{\"count\": -1}",
                "count: the number `-1` is given, and a whole number from 0 is expected",
            ),
            (
                "{\"is_so\": 1.5, \"count\": 1}",
                "is_so: the number `1.5` is given, and true or false is expected",
            ),
            (
                "{\"small\": 4294967296}",
                "small: the number `4294967296` is given, and a whole number from 0 to 4294967295 is expected",
            ),
            (
                "{\n \"is_so\":\n  {}\n}",
                "is_so: an object is given, and true or false is expected",
            ),
            (
                "{\"word\": \"two\"}",
                "word: unknown word `two`, expected `one`",
            ),
            ("{\"word\": 5}", "word: a text is expected"),
            (
                "{\"list\": [1, null]}",
                "list: null is given, and a whole number from 0 is expected",
            ),
            (
                "{\"x\": 1}",
                "unknown field `x`, expected one of `count`, `small`, `is_so`, `word`, `list` (column 4)",
            ),
            (
                "7",
                "the number `7` is given, and an object is expected (column 1)",
            ),
            ("{} {}", "more text follows the JSON (column 4)"),
        ] {
            let error = serde_json::from_str::<Fields>(text).expect_err(text);
            assert_eq!(
                unreadable(text.as_bytes(), &error).to_string(),
                expected,
                "{text}"
            );
        }
    }
}

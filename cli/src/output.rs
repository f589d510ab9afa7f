//! Writing to the terminal: what others chose must not steer it.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

/// Whether what was asked took place: a script branches on the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Exit code 0.
    Done,
    /// Exit code 1: the server decided otherwise, and the output says how.
    Refused,
}

impl Outcome {
    pub(crate) fn done_if(done: bool) -> Self {
        if done { Self::Done } else { Self::Refused }
    }

    /// Refused, if one of both is.
    pub(crate) fn and(self, other: Self) -> Self {
        Self::done_if(self == Self::Done && other == Self::Done)
    }
}

/// Wrong usage that only shows after the command line was read: exit code 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// What became of one message: `WORD [(DETAIL)] ID`, or an object with id, outcome and whatever else `fields` names.
pub(crate) fn message(json: bool, id: &[u8], word: &str, detail: &str, fields: &[(&str, Value)]) -> io::Result<()> {
    if json {
        let mut object = id_fields(id);
        object.insert("outcome".to_owned(), word.into());
        object.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        return line(&Value::Object(object).to_string());
    }
    let detail = if detail.is_empty() { String::new() } else { format!(" ({})", visible(detail.as_bytes())) };
    line(&format!("{word}{detail} {}", visible(id)))
}

/// What became of a queue: `WORD [COUNT] QUEUE`, or an object.
pub(crate) fn queue(json: bool, queue: &str, word: &str, count: Option<u64>) -> io::Result<()> {
    if json {
        let mut object = serde_json::json!({ "queue": queue, "outcome": word });
        if let Some(count) = count {
            object["count"] = count.into();
        }
        return line(&object.to_string());
    }
    let count = count.map(|count| format!(" {count}")).unwrap_or_default();
    line(&format!("{word}{count} {}", visible(queue.as_bytes())))
}

/// An id for a program: as text, and byte for byte where it is none.
pub(crate) fn id_fields(id: &[u8]) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("id".to_owned(), String::from_utf8_lossy(id).into());
    if std::str::from_utf8(id).is_err() {
        object.insert("id_base64".to_owned(), STANDARD.encode(id).into());
    }
    object
}

/// Writes a line at once, so that whoever reads along sees it.
pub(crate) fn line(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// A moment for people: `2026-12-01T12:00:00.25Z`.
pub(crate) fn moment(unix_ms: u64) -> String {
    i64::try_from(unix_ms)
        .ok()
        .and_then(|ms| Timestamp::from_millisecond(ms).ok())
        .map_or_else(|| format!("{unix_ms} ms"), |timestamp| timestamp.to_string())
}

/// Whether a person watches the output.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Text with its control characters made visible, so that a payload cannot move the cursor or change colours.
pub(crate) fn visible(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars()
        .flat_map(
            |c| if c.is_control() || is_bidi(c) { Shown::Escaped(c.escape_default()) } else { Shown::Plain(Some(c)) },
        )
        .collect()
}

enum Shown {
    Plain(Option<char>),
    Escaped(std::char::EscapeDefault),
}

impl Iterator for Shown {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        match self {
            Self::Plain(c) => c.take(),
            Self::Escaped(escape) => escape.next(),
        }
    }
}

/// Characters that reverse or isolate the direction of what follows.
fn is_bidi(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether the reader of our output has gone away.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_not_obeyed() {
        assert_eq!(visible(b"a\x1b[2Jb\n\0"), "a\\u{1b}[2Jb\\n\\u{0}");
        assert_eq!(visible("für \u{1f600}".as_bytes()), "für \u{1f600}");
        assert_eq!(visible("\u{9b}31m\u{202e}".as_bytes()), "\\u{9b}31m\\u{202e}");
        assert_eq!(visible(b"\xff"), "\u{fffd}");
    }
}

//! All output of the program. Text from outside cannot control the terminal.
//!
//! The module `shown` knows the characters that must be escaped for a terminal.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

pub(crate) use crate::shown::visible;
use crate::shown::{guarded, guarded_json};

/// Whether the server did what the command asked, as an exit code for scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Exit code 0.
    Done,
    /// Exit code 1: the server refused, and the output gives the reason.
    Refused,
}

impl Outcome {
    pub(crate) fn done_if(done: bool) -> Self {
        if done { Self::Done } else { Self::Refused }
    }

    /// `Done` only if both outcomes are.
    pub(crate) fn and(self, other: Self) -> Self {
        Self::done_if(self == Self::Done && other == Self::Done)
    }
}

/// A wrong value or combination that the parser of the command line cannot detect: exit code 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// For flags that are parsed together with others: the text of such an error names the flags.
impl From<dueq_input::Error> for Usage {
    fn from(error: dueq_input::Error) -> Self {
        Self(error.reason().to_owned())
    }
}

/// A failure whose explanation has several lines. It contains no text from outside.
#[derive(Debug)]
pub(crate) struct Advice(pub(crate) &'static str);

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Advice {}

/// Prints the outcome of one message: `WORD [(DETAIL)] ID`, or an object with id, outcome and
/// `fields`.
pub(crate) fn message(
    json: bool,
    id: &[u8],
    word: &str,
    detail: &str,
    fields: &[(&str, Value)],
) -> io::Result<()> {
    if json {
        let mut object = id_fields(id);
        object.insert("outcome".to_owned(), word.into());
        object.extend(
            fields
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone())),
        );
        return json_line(&Value::Object(object));
    }
    let detail = if detail.is_empty() {
        String::new()
    } else {
        format!(" ({})", visible(detail.as_bytes()))
    };
    line(&format!("{word}{detail} {}", shown_id(id)))
}

/// Prints the outcome of a call on a queue: `WORD [COUNT] QUEUE`, or an object.
pub(crate) fn queue(json: bool, queue: &str, word: &str, count: Option<u64>) -> io::Result<()> {
    if json {
        let mut object = serde_json::json!({ "queue": queue, "outcome": word });
        if let Some(count) = count {
            object["count"] = count.into();
        }
        return json_line(&object);
    }
    let count = count.map(|count| format!(" {count}")).unwrap_or_default();
    line(&format!("{word}{count} {}", visible(queue.as_bytes())))
}

/// An id for programs: as text, and also in base64 if it is not UTF-8.
pub(crate) fn id_fields(id: &[u8]) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("id".to_owned(), String::from_utf8_lossy(id).into());
    if std::str::from_utf8(id).is_err() {
        object.insert("id_base64".to_owned(), STANDARD.encode(id).into());
    }
    object
}

/// A payload for programs: in base64, and also as text if it is UTF-8.
pub(crate) fn payload_fields(object: &mut Map<String, Value>, payload: &[u8]) {
    if let Ok(text) = std::str::from_utf8(payload) {
        object.insert("payload".to_owned(), text.into());
    }
    object.insert("payload_base64".to_owned(), STANDARD.encode(payload).into());
}

/// The schedule and the fire of a tick, for programs; nothing for any other message.
pub(crate) fn tick_fields(object: &mut Map<String, Value>, tick: Option<dueq::schedules::Tick>) {
    if let Some(tick) = tick {
        object.insert("schedule".to_owned(), tick.schedule.into());
        object.insert("nominal_ms".to_owned(), tick.nominal_ms.into());
    }
}

/// An id for people, ready to paste: as text, or as a shell word if it is not UTF-8.
pub(crate) fn shown_id(id: &[u8]) -> String {
    if std::str::from_utf8(id).is_ok() {
        visible(id)
    } else {
        dueq::admin::shell_word(id)
    }
}

/// Writes a line and flushes it, so that a reader of a pipe sees it at once. Keeps line ends
/// inside.
pub(crate) fn line(text: &str) -> io::Result<()> {
    text_as_it_is(&format!("{}\n", guarded(text)))
}

/// Writes an object on one line.
pub(crate) fn json_line(value: &Value) -> io::Result<()> {
    text_as_it_is(&format!("{}\n", json(value)))
}

/// An object on one line. Characters that control a terminal are escaped as in JSON, so that a JSON
/// parser gets the original value.
pub(crate) fn json(value: &Value) -> String {
    guarded_json(&value.to_string()).into_owned()
}

/// Writes raw bytes; to a terminal, in their visible form.
pub(crate) fn bytes(bytes: &[u8]) -> io::Result<()> {
    if is_terminal() {
        return line(&visible(bytes));
    }
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// Writes a text of the program itself, such as a script, without escaping.
pub(crate) fn text_as_it_is(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Clears the terminal, if there is one, and moves to its upper left corner.
pub(crate) fn clear_screen() -> io::Result<()> {
    if is_terminal() {
        text_as_it_is("\x1b[2J\x1b[H")
    } else {
        Ok(())
    }
}

/// Writes a line to standard error. Ignores errors: standard error may be closed.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{}", guarded(text));
}

/// Replaces the line of a progress on standard error, if that is a terminal.
pub(crate) fn progress(text: &str, is_last: bool) {
    if io::stderr().is_terminal() {
        let end = if is_last { "\n" } else { "" };
        let _ = write!(io::stderr(), "\r{}\x1b[K{end}", guarded(text));
    }
}

/// Standard error as the target of the log: writes each event at once, as one line.
pub(crate) struct Log {
    pub(crate) json: bool,
}

impl Write for Log {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let text = text.trim_end_matches('\n');
        let shown = if self.json {
            guarded_json(text).into_owned()
        } else {
            visible(text.as_bytes())
        };
        writeln!(io::stderr(), "{shown}")?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Formats a moment for people: `2026-12-01T12:00:00.25Z`.
pub(crate) fn moment(unix_ms: u64) -> String {
    i64::try_from(unix_ms)
        .ok()
        .and_then(|ms| Timestamp::from_millisecond(ms).ok())
        .map_or_else(
            || format!("{unix_ms} ms"),
            |timestamp| timestamp.to_string(),
        )
}

fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether the reader of standard output has closed the pipe.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

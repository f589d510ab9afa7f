//! Reading messages as lines of JSON.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Read};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dueq::{Due, Message, OnConflict};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::time;
use crate::when::When;

/// No line is longer: 16 MiB of payload, each byte written as \u00xx.
const MAX_LINE_BYTES: u64 = 100 * 1024 * 1024;
/// A chunk ends with the line that reaches one of these: memory is bounded.
const CHUNK_LINES: usize = 4_096;
const CHUNK_BYTES: usize = 4 * 1024 * 1024;

/// What a line may hold. A word that is not known is refused: a `dealy` would else be due at once.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    /// Text, or any other JSON value.
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    #[serde(borrow)]
    payload_base64: Option<Cow<'a, str>>,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    delay: Option<Cow<'a, str>>,
    #[serde(borrow)]
    at: Option<Cow<'a, str>>,
    max_attempts: Option<u32>,
    #[serde(borrow)]
    traceparent: Option<Cow<'a, str>>,
}

/// What holds for each line that does not say otherwise.
pub(crate) struct Defaults {
    /// Names the file in the ids of lines without one.
    pub(crate) source: String,
    pub(crate) due: Option<Due>,
    pub(crate) when: When,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) on_conflict: OnConflict,
    pub(crate) traceparent: Option<String>,
}

/// Some lines, parsed: what was on them, by number, and how far the file was read.
#[derive(Default)]
pub(crate) struct Chunk {
    pub(crate) messages: Vec<(u64, Message)>,
    pub(crate) bad: Vec<(u64, String)>,
    pub(crate) last_line: u64,
    pub(crate) bytes: u64,
}

/// Reads chunks of a file; its lines are counted from 1.
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    defaults: Defaults,
    line: u64,
    from_line: u64,
    skip_bad: bool,
    buffer: Vec<u8>,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(
        reader: BufReader<R>,
        defaults: Defaults,
        from_line: u64,
        skip_bad: bool,
    ) -> Self {
        Self {
            reader,
            defaults,
            line: 0,
            from_line,
            skip_bad,
            buffer: Vec::new(),
        }
    }

    /// The next lines; none at the end of the file. Unless bad lines are skipped, a chunk ends with the first.
    pub(crate) fn chunk(&mut self) -> io::Result<Option<Chunk>> {
        let mut chunk = Chunk::default();
        while chunk.messages.len() + chunk.bad.len() < CHUNK_LINES
            && chunk.bytes < CHUNK_BYTES as u64
        {
            self.buffer.clear();
            let read = self
                .reader
                .by_ref()
                .take(MAX_LINE_BYTES)
                .read_until(b'\n', &mut self.buffer)?;
            if read == 0 {
                break;
            }
            self.line += 1;
            chunk.bytes += read as u64;
            chunk.last_line = self.line;
            if read as u64 == MAX_LINE_BYTES {
                self.reader.skip_until(b'\n')?;
            }
            // A slow writer's lines are not kept waiting for those that it has not written yet.
            let more = !self.reader.buffer().is_empty();
            let text = self
                .buffer
                .strip_prefix(b"\xef\xbb\xbf")
                .filter(|_| self.line == 1)
                .unwrap_or(&self.buffer);
            let text = text.trim_ascii();
            if text.is_empty() || self.line < self.from_line {
                continue;
            }
            let message = if read as u64 == MAX_LINE_BYTES {
                Err(format!("longer than {MAX_LINE_BYTES} bytes"))
            } else {
                self.defaults.message(text, self.line)
            };
            match message {
                Ok(message) => chunk.messages.push((self.line, message)),
                Err(reason) => {
                    chunk.bad.push((self.line, reason));
                    if !self.skip_bad {
                        break;
                    }
                }
            }
            if !more {
                break;
            }
        }
        Ok((chunk.last_line > 0).then_some(chunk))
    }
}

impl Defaults {
    /// The message on a line.
    fn message(&self, text: &[u8], number: u64) -> Result<Message, String> {
        // A list would be taken for the values of the fields in their order, whatever that is.
        if text.starts_with(b"[") {
            return Err("a list, not an object such as {\"payload\": \"...\"}".to_owned());
        }
        let line: Line<'_> = serde_json::from_slice(text).map_err(|error| {
            let reason = error.to_string();
            let reason = reason.split(" at line ").next().unwrap_or(&reason);
            format!("{reason} (column {})", error.column())
        })?;
        let payload = match (line.payload, line.payload_base64) {
            (Some(payload), None) => bytes_of(payload)?,
            (None, Some(payload)) => STANDARD
                .decode(payload.as_bytes())
                .map_err(|error| format!("payload_base64: {error}"))?,
            (None, None) => return Err("neither payload nor payload_base64".to_owned()),
            _ => return Err("both payload and payload_base64".to_owned()),
        };
        let due = match (line.delay, line.at) {
            (Some(delay), None) => Some(Due::from(time::delay(&delay)?)),
            (None, Some(at)) => Some(self.when.moment(&at)?),
            (None, None) => self.due,
            _ => return Err("both delay and at".to_owned()),
        };
        let mut message = Message::new(payload).on_conflict(self.on_conflict);
        message = match line.id {
            Some(id) => message.id(id.as_bytes()),
            None => message.id(self.stable_id(text, number)),
        };
        if let Some(due) = due {
            message = message.due(due);
        }
        if let Some(max_attempts) = line.max_attempts.or(self.max_attempts) {
            message = message.max_attempts(max_attempts);
        }
        if let Some(traceparent) = line.traceparent.as_deref().or(self.traceparent.as_deref()) {
            message = message.trace_parent(traceparent);
        }
        Ok(message)
    }

    /// The same for the same line of the same file, so that a second run changes nothing; another if either changes.
    fn stable_id(&self, text: &[u8], number: u64) -> String {
        let hash = fnv1a(fnv1a(FNV_START, self.source.as_bytes()), text);
        // Padded: of messages due in the same millisecond the lesser id is first, and so is the earlier line.
        format!("line:{number:010}:{hash:016x}")
    }
}

/// The characters of a text; any other JSON value as it is written.
fn bytes_of(payload: &RawValue) -> Result<Vec<u8>, String> {
    let json = payload.get();
    if !json.starts_with('"') {
        return Ok(json.as_bytes().to_vec());
    }
    serde_json::from_str(json)
        .map(String::into_bytes)
        .map_err(|error| format!("payload: {error}"))
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv1a(start: u64, bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes
        .iter()
        .chain(&[0])
        .fold(start, |hash, &byte| step(hash, byte))
}

//! Reads messages from lines of JSON.

use std::io::{self, BufRead, BufReader, Read};

use dueq::{Message, OnConflict};
use dueq_input::{Defaults, MAX_BYTES, Wording};
use jiff::Timestamp;

/// The longest possible line.
const MAX_LINE_BYTES: u64 = MAX_BYTES as u64;
/// A chunk ends with the line that reaches one of these limits, which bounds the memory.
const CHUNK_LINES: usize = 4_096;
const CHUNK_BYTES: usize = 4 * 1024 * 1024;

/// A message and the number of its line.
pub(crate) struct Line {
    pub(crate) number: u64,
    pub(crate) message: Message,
    /// Whether the line itself gives an id.
    pub(crate) own_id: bool,
}

/// Some parsed lines, each with its number, and how far the file was read.
#[derive(Default)]
pub(crate) struct Chunk {
    pub(crate) messages: Vec<Line>,
    pub(crate) bad: Vec<(u64, String)>,
    pub(crate) last_line: u64,
    pub(crate) bytes: u64,
}

/// Reads a file in chunks. Lines are numbered from 1.
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    /// The idempotency key of the run, which is hashed into the ids of lines without an id.
    key: String,
    defaults: Defaults,
    line: u64,
    from_line: u64,
    skip_bad: bool,
    buffer: Vec<u8>,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(
        reader: BufReader<R>,
        key: String,
        defaults: Defaults,
        from_line: u64,
        skip_bad: bool,
    ) -> Self {
        Self {
            reader,
            key,
            defaults,
            line: 0,
            from_line,
            skip_bad,
            buffer: Vec::new(),
        }
    }

    /// Reads the next lines; `None` at the end of the file. The chunk ends with the first bad line,
    /// unless bad lines are skipped.
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
            // A slow writer has not filled a chunk: push the lines that are there.
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
                Err(format!("the line is longer than {MAX_LINE_BYTES} bytes"))
            } else {
                self.message(text)
            };
            match message {
                Ok(line) => chunk.messages.push(line),
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

/// Reads the follow-ups of a delivery, one JSON line each. Lines without an id get a message
/// without one.
pub(crate) fn follow_ups(bytes: &[u8]) -> Result<Vec<Message>, String> {
    let no_clock = || Err("within is not for messages that follow a delivery".to_owned());
    let defaults = Defaults::new(Wording::Flags, Box::new(Timestamp::now), Box::new(no_clock));
    let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let filled = lines.enumerate().filter(|(_, line)| !line.is_empty());
    filled
        .map(|(index, line)| {
            let message = follow_up(line, &defaults);
            message.map_err(|reason| format!("line {}: {reason}", index + 1))
        })
        .collect()
}

fn follow_up(line: &[u8], defaults: &Defaults) -> Result<Message, String> {
    let message = dueq_input::message(line, defaults).map_err(|error| error.to_string())?;
    if message.conflict() != OnConflict::Keep {
        return Err(
            "on_conflict is not for messages that follow a delivery: leave it out".to_owned(),
        );
    }
    Ok(message)
}

impl<R> Lines<R> {
    fn message(&self, text: &[u8]) -> Result<Line, String> {
        let message =
            dueq_input::message(text, &self.defaults).map_err(|error| error.to_string())?;
        let (number, own_id) = (self.line, message.id_bytes().is_some());
        let message = if own_id {
            message
        } else {
            message.id(self.stable_id(text))
        };
        Ok(Line {
            number,
            message,
            own_id,
        })
    }

    /// An id computed from the idempotency key, the line number and the text. A second run with
    /// this key computes equal ids, and so changes nothing.
    fn stable_id(&self, text: &[u8]) -> String {
        let hash = hash([self.key.as_bytes(), text]);
        // Padded, so that messages due in the same millisecond are delivered in the order of their
        // lines.
        format!("line:{:010}:{hash:016x}", self.line)
    }
}

/// The FNV-1a hash of two parts.
pub(crate) fn hash(parts: [&[u8]; 2]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let bytes = parts.into_iter().flat_map(|part| part.iter().chain(&[0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follow_ups_are_numbered_and_never_replace() {
        let messages =
            follow_ups(b"\n{\"payload\":\"x\",\"id\":\"a\",\"on_conflict\":\"keep\"}\n\n7.5\n");
        assert!(messages.is_err_and(|reason| reason.starts_with("line 4: ")));
        let messages = follow_ups(b"{\"payload\":\"x\"}\n").expect("a message");
        assert_eq!(messages, [Message::new("x")], "without an id");
        let replacing = follow_ups(b"{\"payload\":\"x\",\"id\":\"a\",\"on_conflict\":\"next\"}");
        assert!(
            replacing.is_err_and(|reason| reason.starts_with("line 1: on_conflict is not for"))
        );
        let hours =
            follow_ups(b"{\"payload\":\"x\",\"within\":\"Mon 09:00-10:00\",\"tz\":\"UTC\"}");
        assert!(hours.is_err_and(|reason| reason.contains("within is not for")));
    }
}

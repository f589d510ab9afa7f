//! Reads messages from lines of JSON.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Read};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dueq::{Due, Message, OnConflict};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::expiry::{self, Expiry, Fate, Last, expiring};
use crate::time;
use crate::unique::UniqueFlags;
use crate::when::{Timing, When};

/// The longest possible line: a payload of 16 MiB, each byte written as \u00xx.
const MAX_LINE_BYTES: u64 = 100 * 1024 * 1024;
/// A chunk ends with the line that reaches one of these limits, which bounds the memory.
const CHUNK_LINES: usize = 4_096;
const CHUNK_BYTES: usize = 4 * 1024 * 1024;

/// The fields of a line. Unknown names are refused: a message with `dealy` would be due at once.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    /// A string, or any other JSON value.
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
    #[serde(borrow)]
    within: Option<Cow<'a, str>>,
    #[serde(borrow)]
    tz: Option<Cow<'a, str>>,
    spread_ms: Option<u64>,
    #[serde(borrow)]
    expires: Option<Cow<'a, str>>,
    #[serde(borrow)]
    expires_at: Option<Cow<'a, str>>,
    on_expire: Option<Fate>,
    cost: Option<u32>,
    max_attempts: Option<u32>,
    #[serde(borrow)]
    traceparent: Option<Cow<'a, str>>,
    #[serde(borrow)]
    window: Option<Cow<'a, str>>,
    #[serde(borrow)]
    max_wait: Option<Cow<'a, str>>,
    reuse: Option<bool>,
    revive: Option<bool>,
}

/// The values for fields that a line leaves out.
pub(crate) struct Defaults {
    /// The name of the file, which is hashed into the ids of lines without an id.
    pub(crate) source: String,
    pub(crate) when: When,
    /// What `when` says, read once.
    pub(crate) timing: Timing,
    /// The present time by the server's clock, or why it is unknown.
    pub(crate) now_ms: NowMs,
    pub(crate) spread: Option<Duration>,
    pub(crate) expiry: Expiry,
    /// What `expiry` says, read once.
    pub(crate) last: Option<Last>,
    pub(crate) cost: Option<u32>,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) on_conflict: OnConflict,
    pub(crate) unique: UniqueFlags,
    pub(crate) traceparent: Option<String>,
}

pub(crate) type NowMs = Box<dyn Fn() -> Result<u64, String> + Send>;

/// Some parsed lines, each with its number, and how far the file was read.
#[derive(Default)]
pub(crate) struct Chunk {
    pub(crate) messages: Vec<(u64, Message)>,
    pub(crate) bad: Vec<(u64, String)>,
    pub(crate) last_line: u64,
    pub(crate) bytes: u64,
}

/// Reads a file in chunks. Lines are numbered from 1.
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
            // Push the lines of a slow writer now, before it has filled a chunk.
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

/// Reads the messages that follow a delivery, a line each. Those without an id get none.
pub(crate) fn follow_ups(bytes: &[u8]) -> Result<Vec<Message>, String> {
    let defaults = Defaults {
        source: String::new(),
        when: When {
            delay: None,
            at: None,
            within: None,
            tz: None,
        },
        timing: Timing {
            due: None,
            hours: None,
        },
        now_ms: Box::new(|| Err("within is not for messages that follow a delivery".to_owned())),
        spread: None,
        expiry: Expiry::default(),
        last: None,
        cost: None,
        max_attempts: None,
        on_conflict: OnConflict::Keep,
        unique: UniqueFlags::default(),
        traceparent: None,
    };
    let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let filled = lines.enumerate().filter(|(_, line)| !line.is_empty());
    filled
        .map(|(index, line)| {
            let message = defaults.parse(line);
            message.map_err(|reason| format!("line {}: {reason}", index + 1))
        })
        .collect()
}

impl Defaults {
    fn message(&self, text: &[u8], number: u64) -> Result<Message, String> {
        let message = self.parse(text)?;
        Ok(match message.id_bytes() {
            Some(_) => message,
            None => message.id(self.stable_id(text, number)),
        })
    }

    /// Parses a line. A line without an id gets none.
    fn parse(&self, text: &[u8]) -> Result<Message, String> {
        // Serde would read a list as the values of the fields in their order.
        if text.starts_with(b"[") {
            return Err(
                "the line is a list; write an object such as {\"payload\": \"...\"}".to_owned(),
            );
        }
        let line: Line<'_> = serde_json::from_slice(text).map_err(|error| {
            let reason = error.to_string();
            let reason = reason.split(" at line ").next().unwrap_or(&reason);
            format!("{reason} (column {})", error.column())
        })?;
        let payload = match (line.payload, &line.payload_base64) {
            (Some(payload), None) => bytes_of(payload)?,
            (None, Some(payload)) => STANDARD
                .decode(payload.as_bytes())
                .map_err(|error| format!("payload_base64: {error}"))?,
            (None, None) => {
                return Err("the line has neither payload nor payload_base64; add one".to_owned());
            }
            _ => return Err("the line has both payload and payload_base64; remove one".to_owned()),
        };
        let (due, last) = (self.due(&line)?, self.last(&line)?);
        let unique = self.unique.of_line(&line)?;
        let mut message = unique.apply(Message::new(payload).on_conflict(self.on_conflict));
        if let Some(id) = line.id {
            message = message.id(id.as_bytes());
        }
        if let Some(due) = due {
            message = message.due(due);
        }
        if let Some(window) = line.spread_ms.map(Duration::from_millis).or(self.spread) {
            message = message.spread(window);
        }
        message = expiring(message, last, line.on_expire.or(self.expiry.on_expire));
        if let Some(cost) = line.cost.or(self.cost) {
            message = message.cost(cost);
        }
        if let Some(max_attempts) = line.max_attempts.or(self.max_attempts) {
            message = message.max_attempts(max_attempts);
        }
        if let Some(traceparent) = line.traceparent.as_deref().or(self.traceparent.as_deref()) {
            message = message.trace_parent(traceparent);
        }
        Ok(message)
    }

    /// The due time of a line. The flags give what the line leaves out; of delay and at, a line has
    /// its own or neither.
    fn due(&self, line: &Line<'_>) -> Result<Option<Due>, String> {
        let (delay, at) = match (&line.delay, &line.at) {
            (None, None) => (self.when.delay, self.when.at.clone()),
            (Some(delay), None) => (Some(time::delay(delay)?), None),
            (None, Some(at)) => (None, Some(at.to_string())),
            _ => return Err("the line has both delay and at; remove one".to_owned()),
        };
        let zone = line.tz.as_deref().map(time::zone).transpose()?;
        let (own_time, own_zone) = (line.delay.is_some() || line.at.is_some(), zone.is_some());
        let when = When {
            delay,
            at,
            within: line
                .within
                .as_deref()
                .or(self.when.within.as_deref())
                .map(str::to_owned),
            tz: zone.or_else(|| self.when.tz.clone()),
        };
        if own_zone {
            let (expires, expires_at) = (&line.expires, line.expires_at.as_deref());
            let of_flags = self.expiry.expires_at.as_deref();
            let expires_at = expires_at.or(of_flags.filter(|_| expires.is_none()));
            when.refuse_idle_zone(expires_at).map_err(|usage| usage.0)?;
        }
        let mut timing = self.timing.clone();
        if own_time || own_zone {
            timing.due = when.due().map_err(|usage| usage.0)?;
        }
        if line.within.is_some() || own_zone {
            timing.hours = when.hours().map_err(|usage| usage.0)?;
        }
        if timing.hours.is_none() {
            return Ok(timing.due);
        }
        let due = timing.resolve_at((self.now_ms)()?);
        due.map_err(|error| error.to_string())
    }

    /// When the message of a line expires. Of expires and expires_at, a line has its own or neither.
    fn last(&self, line: &Line<'_>) -> Result<Option<Last>, String> {
        let zone = line.tz.as_deref().map(time::zone).transpose()?;
        let zone = zone.as_ref().or(self.when.tz.as_ref());
        let of_flags = self.expiry.expires_at.as_deref();
        let last = match (&line.expires, &line.expires_at) {
            (Some(time), None) => {
                let time = time::period(time).map_err(|error| format!("expires: {error}"))?;
                Some(Last::After(time))
            }
            (None, Some(at)) => {
                let at = expiry::at(at, zone).map_err(|error| format!("expires_at: {error}"))?;
                Some(at)
            }
            // The moment of the flags, in the zone of the line.
            (None, None) => match of_flags.filter(|_| line.tz.is_some()) {
                Some(at) => Some(expiry::at(at, zone)?),
                None => self.last,
            },
            _ => return Err("the line has both expires and expires_at; remove one".to_owned()),
        };
        if line.on_expire.is_some() && last.is_none() {
            return Err(
                "on_expire has no effect without expires or expires_at; add one".to_owned(),
            );
        }
        Ok(last)
    }

    /// An id computed from file, line number and text. A second run of the same file finds the same
    /// ids and changes nothing.
    fn stable_id(&self, text: &[u8], number: u64) -> String {
        let hash = fnv1a(fnv1a(FNV_START, self.source.as_bytes()), text);
        // Padded, so that messages due in the same millisecond are delivered in the order of their
        // lines.
        format!("line:{number:010}:{hash:016x}")
    }
}

impl UniqueFlags {
    /// The options of a line. The flags give what it leaves out.
    fn of_line(self, line: &Line<'_>) -> Result<Self, String> {
        let time = |text: &Option<Cow<'_, str>>| text.as_deref().map(time::delay).transpose();
        Ok(Self {
            window: time(&line.window)?.or(self.window),
            max_wait: time(&line.max_wait)?.or(self.max_wait),
            reuse: line.reuse.unwrap_or(self.reuse),
            revive: line.revive.unwrap_or(self.revive),
        })
    }
}

/// The characters of a string; the text of any other JSON value.
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

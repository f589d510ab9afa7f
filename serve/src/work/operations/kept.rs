//! The messages that a cancel has cancelled, as lines of JSON that push them again.
//!
//! They are in the memory of this instance only, until newer operations need their room.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dueq::StoredMessage;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::wire::again::push_again;
use crate::wire::messages::Message;

/// The most bytes of all files.
pub(super) const MAX_BYTES: usize = 64 << 20;
/// Payloads up to this size are written as text if they are UTF-8; each of their bytes may need six
/// characters. Longer ones are written in base64.
const MAX_TEXT: u64 = 64 << 10;
/// The most bytes of a line without its payload.
const OF_FIELDS: u64 = 4 << 10;

/// The room of all files of an instance.
#[derive(Clone)]
pub(super) struct Rooms(Arc<Semaphore>);

/// The reserved room of one line.
pub(super) type LineRoom = OwnedSemaphorePermit;

/// The file of one operation.
pub(crate) struct Kept {
    rooms: Rooms,
    lines: Mutex<Lines>,
}

#[derive(Default)]
struct Lines {
    lines: Vec<Bytes>,
    room: Option<LineRoom>,
    /// Whether lines were dropped for newer files.
    is_cut: bool,
}

impl Rooms {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MAX_BYTES)))
    }

    pub(super) fn free(&self) -> usize {
        self.0.available_permits()
    }

    pub(super) fn file(&self) -> Kept {
        Kept {
            rooms: self.clone(),
            lines: Mutex::default(),
        }
    }
}

impl Kept {
    /// Reserves room for a message with a payload of this size; `None` if there is none.
    pub(super) fn room_for(&self, payload_bytes: u64) -> Option<LineRoom> {
        let line = match payload_bytes {
            bytes @ 0..=MAX_TEXT => bytes * 6,
            bytes => bytes.saturating_mul(4) / 3,
        };
        let bytes = u32::try_from(line.saturating_add(OF_FIELDS)).ok()?;
        let rooms = Arc::clone(&self.rooms.0);
        rooms.try_acquire_many_owned(bytes).ok()
    }

    /// Adds a cancelled message, and gives back the room that its line does not need. A message
    /// whose payload has grown since the room was reserved may need more than it got.
    pub(super) fn write(&self, id: &[u8], mut stored: StoredMessage, mut room: LineRoom) {
        let payload = std::mem::take(&mut stored.payload);
        let fields = serde_json::to_value(Message::new(id, stored, true)).unwrap_or_default();
        let mut line = push_again(&fields);
        for name in ["id", "id_base64"] {
            // A push refuses a line with `id_base64`, and names it: such an id is no JSON text.
            if fields[name].is_string() {
                line[name] = fields[name].clone();
            }
        }
        let is_short = payload.len() as u64 <= MAX_TEXT;
        match String::from_utf8(payload) {
            Ok(text) if is_short => line["payload"] = Value::String(text),
            text => {
                let bytes =
                    text.map_or_else(std::string::FromUtf8Error::into_bytes, String::into_bytes);
                line["payload_base64"] = Value::String(encoded(&bytes));
            }
        }
        let line = Bytes::from(line.to_string() + "\n");
        if let Some(rest) = room.num_permits().checked_sub(line.len()) {
            drop(room.split(rest));
        }
        let mut lines = self.locked();
        lines.lines.push(line);
        match &mut lines.room {
            Some(held) => held.merge(room),
            held => *held = Some(room),
        }
    }

    /// All lines so far; `None` if they were dropped.
    pub(super) fn lines(&self) -> Option<Vec<Bytes>> {
        let lines = self.locked();
        (!lines.is_cut).then(|| lines.lines.clone())
    }

    pub(super) fn has_lines(&self) -> bool {
        !self.locked().lines.is_empty()
    }

    /// Drops the lines, for the room of newer files.
    pub(super) fn clear(&self) {
        let mut lines = self.locked();
        *lines = Lines {
            is_cut: lines.is_cut || !lines.lines.is_empty(),
            ..Lines::default()
        };
    }

    fn locked(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn encoded(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_of_all_files_is_bounded_and_given_back() {
        let rooms = Rooms::new();
        let (one, other) = (rooms.file(), rooms.file());
        let large = one.room_for(40 << 20).expect("room");
        assert!(other.room_for(40 << 20).is_none() && other.room_for(1).is_some());
        assert!(other.room_for(u64::MAX).is_none());
        drop(large);
        assert_eq!(rooms.free(), MAX_BYTES);
    }
}

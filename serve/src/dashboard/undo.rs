//! Keeps cancelled messages for 10 s, so that an undo can push them again.
//!
//! They are in the memory of this instance only. Redis does not keep them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::dashboard::api::{Api, Failure};
use crate::edge::body::Bodies;
use crate::edge::problem::{Code, Problem};
use crate::wire::again::push_again;

/// How long a cancelled message is kept. It is less than the 12 s for which the queue remembers the
/// cancel, and so refuses an undo after another change of the id.
const KEPT: Duration = Duration::from_secs(10);
/// The most bytes of all kept payloads, and the most kept messages.
const MAX_BYTES: usize = 16 << 20;
const MAX_MESSAGES: usize = 1_000;
/// How many reads of a message are made at most, if it changes between two reads.
const MAX_READS: usize = 3;

/// For how long the page of a message says that its cancel was undone.
const NOTED: Duration = Duration::from_secs(3_600);

/// The cancelled messages of this instance, the oldest first.
#[derive(Default)]
pub(crate) struct Undo {
    kept: Mutex<VecDeque<Entry>>,
    undone: Mutex<VecDeque<Note>>,
}

/// A cancel that was undone.
struct Note {
    queue: String,
    id: Vec<u8>,
    until: Instant,
    undone: Undone,
}

/// Who cancelled a message, when, and when that was undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::dashboard) struct Undone {
    pub(in crate::dashboard) by: String,
    pub(in crate::dashboard) cancelled_ms: u64,
    pub(in crate::dashboard) undone_ms: u64,
}

struct Entry {
    queue: String,
    id: Vec<u8>,
    until: Instant,
    /// The name of the caller who cancelled the message, and `undo_ms`, which identifies that
    /// cancel in an undo.
    by: String,
    undo_ms: u64,
    message: Arc<Cancelled>,
}

/// A message as it was before its cancel.
#[derive(Debug, PartialEq)]
pub(in crate::dashboard) struct Cancelled {
    /// The message as JSON of `/v1`, without the payload and the error.
    fields: Value,
    payload: Vec<u8>,
}

impl Undo {
    /// Keeps a message for 10 s. The oldest ones are dropped if there is no room.
    pub(in crate::dashboard) fn keep(
        &self,
        (queue, id): (&str, &[u8]),
        (by, undo_ms): (&str, u64),
        message: Cancelled,
        now: Instant,
    ) {
        let mut entries = self.fresh(now);
        entries.retain(|entry| !entry.is_of(queue, id));
        entries.push_back(Entry {
            queue: queue.to_owned(),
            id: id.to_vec(),
            until: now + KEPT,
            by: by.to_owned(),
            undo_ms,
            message: Arc::new(message),
        });
        let mut bytes: usize = entries.iter().map(Entry::bytes).sum();
        while bytes > MAX_BYTES || entries.len() > MAX_MESSAGES {
            let oldest = entries.pop_front();
            bytes -= oldest.map_or(bytes, |entry| entry.bytes());
        }
    }

    /// Whether this caller has cancelled the message on this instance.
    pub(in crate::dashboard) fn is_by(
        &self,
        queue: &str,
        id: &[u8],
        by: &str,
        now: Instant,
    ) -> bool {
        let entries = self.fresh(now);
        let mut kept = entries.iter();
        kept.any(|entry| entry.is_of(queue, id) && entry.by == by)
    }

    /// The kept message, the `undo_ms` that identifies its cancel, and the time for which it is
    /// still kept.
    pub(in crate::dashboard) fn get(
        &self,
        queue: &str,
        id: &[u8],
        now: Instant,
    ) -> Option<(Arc<Cancelled>, u64, Duration)> {
        let entries = self.fresh(now);
        let entry = entries.iter().find(|entry| entry.is_of(queue, id))?;
        Some((Arc::clone(&entry.message), entry.undo_ms, entry.until - now))
    }

    /// Notes that the cancel of the kept message was undone.
    pub(in crate::dashboard) fn note(&self, queue: &str, id: &[u8], undone_ms: u64, now: Instant) {
        let by = {
            let entries = self.fresh(now);
            let entry = entries.iter().find(|entry| entry.is_of(queue, id));
            entry.map(|entry| (entry.by.clone(), entry.undo_ms))
        };
        let Some((by, cancelled_ms)) = by else { return };
        let mut notes = self.undone.lock().unwrap_or_else(PoisonError::into_inner);
        notes.retain(|note| note.until > now && !(note.queue == queue && note.id == id));
        notes.truncate(MAX_MESSAGES - 1);
        notes.push_front(Note {
            queue: queue.to_owned(),
            id: id.to_vec(),
            until: now + NOTED,
            undone: Undone {
                by,
                cancelled_ms,
                undone_ms,
            },
        });
    }

    /// The last cancel of this id that was undone.
    pub(in crate::dashboard) fn undone(
        &self,
        queue: &str,
        id: &[u8],
        now: Instant,
    ) -> Option<Undone> {
        let notes = self.undone.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fresh = notes.iter().filter(|note| note.until > now);
        let note = fresh.find(|note| note.queue == queue && note.id == id)?;
        Some(note.undone.clone())
    }

    /// Drops the expired entries, and returns the rest.
    fn fresh(&self, now: Instant) -> MutexGuard<'_, VecDeque<Entry>> {
        let mut entries = self.locked();
        entries.retain(|entry| entry.until > now);
        entries
    }

    fn locked(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn is_of(&self, queue: &str, id: &[u8]) -> bool {
        self.queue == queue && self.id == id
    }

    fn bytes(&self) -> usize {
        self.message.payload.len()
    }
}

impl Cancelled {
    /// Reads the message at this address with its whole payload, even if the caller may not read
    /// payloads.
    pub(in crate::dashboard) async fn read(
        api: &Api,
        bodies: &Bodies,
        address: &str,
    ) -> Result<Self, Failure> {
        let api = api.with_payloads();
        let mut memory = bodies.none();
        let fields_of = || api.get::<Value>(address);
        let mut shown = fields_of().await?;
        for _ in 0..MAX_READS {
            let payload = if shown["payload_truncated"] == true {
                // Memory for the payload and a copy of it.
                let length = shown["payload_bytes"].as_u64().unwrap_or_default();
                let wanted = usize::try_from(length.saturating_mul(2)).unwrap_or(usize::MAX);
                memory.grow(wanted.saturating_sub(memory.bytes()))?;
                api.bytes(&format!("{address}/payload")).await?.to_vec()
            } else {
                let bytes = payload_of(&shown).ok_or_else(|| unread(address))?;
                return Ok(Self::new(shown, bytes));
            };
            let again = fields_of().await?;
            if again == shown && again["payload_bytes"] == payload.len() {
                return Ok(Self::new(shown, payload));
            }
            shown = again;
        }
        Err(unread(address))
    }

    fn new(mut fields: Value, payload: Vec<u8>) -> Self {
        if let Some(fields) = fields.as_object_mut() {
            // The error may be long, and a push cannot restore it.
            for name in ["payload", "payload_base64", "error"] {
                fields.remove(name);
            }
        }
        Self { fields, payload }
    }

    /// The body of the push that restores the message.
    pub(in crate::dashboard) fn body(&self, undo_ms: u64) -> Value {
        let mut body = push_again(&self.fields);
        body["payload_base64"] = STANDARD.encode(&self.payload).into();
        body["undo_ms"] = undo_ms.into();
        body
    }

    pub(in crate::dashboard) fn due_ms(&self) -> Option<u64> {
        self.fields["due_ms"].as_u64()
    }

    /// The properties of the message that the push does not restore.
    pub(in crate::dashboard) fn losses(&self) -> Vec<&'static str> {
        let number = |name: &str| self.fields[name].as_u64().unwrap_or_default();
        let id = self.fields["id"].as_str().unwrap_or_default();
        let is_tick = id.rsplit_once('@').is_some_and(|(_, ms)| {
            (12..=15).contains(&ms.len()) && ms.bytes().all(|byte| byte.is_ascii_digit())
        });
        let has_count = number("failures") + number("crashes") + number("snoozes") > 0;
        [
            (
                has_count,
                "Its failures, crashes and snoozes count from none, and its last error is gone.",
            ),
            (
                number("window_ms") > 0,
                "The time for which the queue remembers its id begins again.",
            ),
            (
                number("due_by_ms") > 0,
                "Pushes can postpone it without a limit.",
            ),
            (
                is_tick,
                "If it was a tick of a schedule, it is an ordinary message then.",
            ),
        ]
        .into_iter()
        .filter_map(|(holds, loss)| holds.then_some(loss))
        .collect()
    }
}

fn payload_of(shown: &Value) -> Option<Vec<u8>> {
    match (&shown["payload"], &shown["payload_base64"]) {
        (Value::String(text), _) => Some(text.clone().into_bytes()),
        (_, Value::String(encoded)) => STANDARD.decode(encoded).ok(),
        _ => None,
    }
}

fn unread(address: &str) -> Failure {
    let detail = format!("{address}: the message changed while it was read");
    Problem::new(Code::Internal, detail).into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(bytes: usize) -> Cancelled {
        Cancelled {
            fields: Value::Null,
            payload: vec![0; bytes],
        }
    }

    #[test]
    fn undo_keeps_messages_for_10_s_and_within_16_mib() {
        let (undo, begin) = (Undo::default(), Instant::now());
        let keep = |queue, id: &[u8], bytes, now| {
            undo.keep((queue, id), ("ann", 7), message(bytes), now);
        };
        let get = |queue, id: &[u8], now| undo.get(queue, id, now);
        keep("a", b"1", 10 << 20, begin);
        keep("b", b"1", 5, begin);
        let (kept, _, left) = get("a", b"1", begin).expect("it is kept");
        assert_eq!((kept.payload.len(), left), (10 << 20, KEPT));
        assert!(get("a", b"2", begin).is_none());
        // The second message with the id replaces the first one.
        let later = begin + Duration::from_secs(7);
        keep("b", b"1", 7, later);
        assert_eq!(get("b", b"1", later).expect("kept").0.payload.len(), 7);
        assert!(get("a", b"1", begin + KEPT).is_none());
        assert!(get("b", b"1", begin + KEPT).is_some());
        for (by, is_by) in [("bob", false), ("ann", true)] {
            assert_eq!(undo.is_by("b", b"1", by, later), is_by, "{by}");
        }
        // A payload of the largest size leaves no room for others.
        keep("c", b"1", MAX_BYTES, later);
        assert!(get("b", b"1", later).is_none() && get("c", b"1", later).is_some());
        for id in 0..=MAX_MESSAGES {
            keep("d", &id.to_be_bytes(), 0, later);
        }
        assert!(get("c", b"1", later).is_none());
        assert_eq!(undo.fresh(later).len(), MAX_MESSAGES);
    }

    #[test]
    fn undone_cancel_is_noted_for_an_hour() {
        let (undo, begin) = (Undo::default(), Instant::now());
        undo.note("a", b"1", 9, begin);
        assert_eq!(undo.undone("a", b"1", begin), None, "nothing was cancelled");
        undo.keep(("a", b"1"), ("ann", 7), message(1), begin);
        undo.note("a", b"1", 9, begin);
        let noted = undo.undone("a", b"1", begin + Duration::from_secs(3_599));
        let expected = Undone {
            by: "ann".to_owned(),
            cancelled_ms: 7,
            undone_ms: 9,
        };
        assert_eq!(noted, Some(expected));
        assert_eq!(undo.undone("a", b"2", begin), None);
        assert_eq!(undo.undone("a", b"1", begin + NOTED), None);
    }

    #[test]
    fn push_of_an_undo_has_every_option() {
        let fields = json!({
            "id": "report@1796299200000", "due_ms": 1_000, "failures": 1, "cost": 3,
            "max_attempts": 7, "expires_at_ms": 6_000, "expires_after_ms": 5_000, "on_expire": "drop",
            "window_ms": 60_000, "due_by_ms": 9_000,
        });
        let cancelled = Cancelled {
            fields,
            payload: b"\xff".to_vec(),
        };
        let expected = json!({
            "payload_base64": "/w==", "at": "1970-01-01T00:00:01Z", "expires": "5000ms", "on_expire": "drop",
            "cost": 3, "max_attempts": 7, "window": "60000ms", "undo_ms": 5,
        });
        assert_eq!(cancelled.body(5), expected);
        assert_eq!(cancelled.losses().len(), 4);
        // After a retry the expiry is a fixed time.
        let mut fixed = cancelled;
        fixed.fields["expires_at_ms"] = 8_000.into();
        assert_eq!(fixed.body(5)["expires_at"], "1970-01-01T00:00:08Z");
        assert!(fixed.body(5)["expires"].is_null());
        let plain = Cancelled {
            fields: json!({"id": "a", "due_ms": 1, "cost": 1, "on_expire": "dead"}),
            payload: Vec::new(),
        };
        assert_eq!(
            plain.body(5),
            json!({"payload_base64": "", "at": "1970-01-01T00:00:00.001Z", "undo_ms": 5})
        );
        assert!(plain.losses().is_empty());
    }
}

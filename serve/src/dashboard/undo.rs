//! Cancelled messages, which can be pushed again for a while.
//!
//! They are in the memory of this instance only. Redis is never asked to keep them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::body::Bodies;
use crate::dashboard::api::{Api, Failure};
use crate::problem::{Code, Problem};
use crate::shown::moment;

/// How long a cancelled message is kept.
const KEPT: Duration = Duration::from_secs(30);
/// How many bytes of payloads are kept, and how many messages.
const MAX_BYTES: usize = 16 << 20;
const MAX_MESSAGES: usize = 1_000;
/// How often a message is read again that changes while it is read.
const MAX_READS: usize = 3;

/// The cancelled messages of this instance, the oldest first.
#[derive(Default)]
pub(crate) struct Undo(Mutex<VecDeque<Entry>>);

struct Entry {
    queue: String,
    id: Vec<u8>,
    until: Instant,
    /// `None` if it is back.
    message: Option<Arc<Cancelled>>,
    /// Locked while an undo pushes the message. A second undo waits, and then finds it pushed.
    turn: Arc<Turn>,
}

type Turn = tokio::sync::Mutex<()>;

/// A message as it was before its cancel.
#[derive(Debug, PartialEq)]
pub(in crate::dashboard) struct Cancelled {
    /// As `/v1` shows it, without the payload and the error.
    fields: Value,
    payload: Vec<u8>,
}

impl Undo {
    /// Keeps a message for 30 s. Older ones go if it needs their room.
    pub(in crate::dashboard) fn keep(
        &self,
        queue: &str,
        id: &[u8],
        message: Cancelled,
        now: Instant,
    ) {
        let mut entries = self.fresh(now);
        entries.retain(|entry| !entry.is_of(queue, id));
        entries.push_back(Entry {
            queue: queue.to_owned(),
            id: id.to_vec(),
            until: now + KEPT,
            message: Some(Arc::new(message)),
            turn: Arc::default(),
        });
        let mut bytes: usize = entries.iter().map(Entry::bytes).sum();
        while bytes > MAX_BYTES || entries.len() > MAX_MESSAGES {
            let oldest = entries.pop_front();
            bytes -= oldest.map_or(bytes, |entry| entry.bytes());
        }
    }

    /// The message, and for how long it is still kept.
    pub(in crate::dashboard) fn get(
        &self,
        queue: &str,
        id: &[u8],
        now: Instant,
    ) -> Option<(Arc<Cancelled>, Duration)> {
        let entries = self.fresh(now);
        let entry = entries.iter().find(|entry| entry.is_of(queue, id))?;
        Some((Arc::clone(entry.message.as_ref()?), entry.until - now))
    }

    /// The turn to push the message again.
    pub(in crate::dashboard) fn turn(
        &self,
        queue: &str,
        id: &[u8],
        now: Instant,
    ) -> Option<Arc<Turn>> {
        let entries = self.fresh(now);
        let entry = entries.iter().find(|entry| entry.is_of(queue, id))?;
        Some(Arc::clone(&entry.turn))
    }

    /// The message is back. One that was cancelled again meanwhile stays.
    pub(in crate::dashboard) fn undone(&self, queue: &str, id: &[u8], message: &Arc<Cancelled>) {
        for entry in self.locked().iter_mut() {
            let is_it = |kept: &mut Arc<Cancelled>| Arc::ptr_eq(kept, message);
            if entry.is_of(queue, id) {
                entry.message.take_if(is_it);
            }
        }
    }

    /// Whether the message was brought back within 30 s of its cancel.
    pub(in crate::dashboard) fn is_undone(&self, queue: &str, id: &[u8], now: Instant) -> bool {
        let entries = self.fresh(now);
        let entry = entries.iter().find(|entry| entry.is_of(queue, id));
        entry.is_some_and(|entry| entry.message.is_none())
    }

    /// The entries whose time is not over.
    fn fresh(&self, now: Instant) -> MutexGuard<'_, VecDeque<Entry>> {
        let mut entries = self.locked();
        entries.retain(|entry| entry.until > now);
        entries
    }

    fn locked(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn is_of(&self, queue: &str, id: &[u8]) -> bool {
        self.queue == queue && self.id == id
    }

    fn bytes(&self) -> usize {
        self.message
            .as_ref()
            .map_or(0, |message| message.payload.len())
    }
}

impl Cancelled {
    /// Reads the message at this address with its whole payload, also for callers to whom it is not
    /// shown.
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
                // The payload, and its copy.
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
            // The error may be long, and a push cannot bring it back.
            for name in ["payload", "payload_base64", "error"] {
                fields.remove(name);
            }
        }
        Self { fields, payload }
    }

    /// The body of the push that stores it again.
    pub(in crate::dashboard) fn body(&self) -> Value {
        let number = |name: &str| self.fields[name].as_u64();
        let mut body = json!({ "payload_base64": STANDARD.encode(&self.payload) });
        let mut set = |name: &str, value: Value| body[name] = value;
        if let Some(due_ms) = number("due_ms") {
            set("at", moment(due_ms).into());
        }
        let (at, after) = (number("expires_at_ms"), number("expires_after_ms"));
        let is_of_due =
            at.is_none() || at == number("due_ms").zip(after).map(|(due, after)| due + after);
        match (at, after) {
            (_, Some(after)) if is_of_due => set("expires", format!("{after}ms").into()),
            (Some(at), _) => set("expires_at", moment(at).into()),
            _ => {}
        }
        if at.or(after).is_some() {
            set("on_expire", self.fields["on_expire"].clone());
        }
        for name in ["max_attempts", "traceparent"] {
            if !self.fields[name].is_null() {
                set(name, self.fields[name].clone());
            }
        }
        if number("cost").is_some_and(|cost| cost > 1) {
            set("cost", self.fields["cost"].clone());
        }
        if let Some(window_ms) = number("window_ms") {
            set("window", format!("{window_ms}ms").into());
        }
        body
    }

    pub(in crate::dashboard) fn due_ms(&self) -> Option<u64> {
        self.fields["due_ms"].as_u64()
    }

    /// What the push does not bring back of this message.
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
    use super::*;

    fn message(bytes: usize) -> Cancelled {
        Cancelled {
            fields: Value::Null,
            payload: vec![0; bytes],
        }
    }

    #[test]
    fn messages_are_kept_for_a_time_within_a_budget() {
        let (undo, begin) = (Undo::default(), Instant::now());
        undo.keep("a", b"1", message(10 << 20), begin);
        undo.keep("b", b"1", message(5), begin);
        let (kept, left) = undo.get("a", b"1", begin).expect("it is kept");
        assert_eq!((kept.payload.len(), left), (10 << 20, KEPT));
        assert!(undo.get("a", b"2", begin).is_none());
        // The second one of the same id replaces the first.
        let later = begin + Duration::from_secs(20);
        undo.keep("b", b"1", message(7), later);
        assert_eq!(undo.get("b", b"1", later).expect("kept").0.payload.len(), 7);
        assert!(undo.get("a", b"1", begin + KEPT).is_none());
        assert!(undo.get("b", b"1", begin + KEPT).is_some());
        // The largest payload needs all the room.
        undo.keep("c", b"1", message(MAX_BYTES), later);
        assert!(undo.get("b", b"1", later).is_none() && undo.get("c", b"1", later).is_some());
        for id in 0..=MAX_MESSAGES {
            undo.keep("d", &id.to_be_bytes(), message(0), later);
        }
        assert!(undo.get("c", b"1", later).is_none());
        assert_eq!(undo.fresh(later).len(), MAX_MESSAGES);
    }

    #[test]
    fn message_that_is_back_is_gone_and_one_cancelled_again_stays() {
        let (undo, now) = (Undo::default(), Instant::now());
        undo.keep("a", b"1", message(5), now);
        let (first, _) = undo.get("a", b"1", now).expect("it is kept");
        undo.undone("a", b"1", &first);
        assert!(undo.get("a", b"1", now).is_none() && undo.is_undone("a", b"1", now));
        assert!(!undo.is_undone("a", b"1", now + KEPT));
        undo.keep("a", b"1", message(6), now);
        undo.undone("a", b"1", &first);
        assert!(undo.get("a", b"1", now).is_some() && !undo.is_undone("a", b"1", now));
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
            "cost": 3, "max_attempts": 7, "window": "60000ms",
        });
        assert_eq!(cancelled.body(), expected);
        assert_eq!(cancelled.losses().len(), 4);
        // A retry has fixed the expiry.
        let mut fixed = cancelled;
        fixed.fields["expires_at_ms"] = 8_000.into();
        assert_eq!(fixed.body()["expires_at"], "1970-01-01T00:00:08Z");
        assert!(fixed.body()["expires"].is_null());
        let plain = Cancelled {
            fields: json!({"id": "a", "due_ms": 1, "cost": 1, "on_expire": "dead"}),
            payload: Vec::new(),
        };
        assert_eq!(
            plain.body(),
            json!({"payload_base64": "", "at": "1970-01-01T00:00:00.001Z"})
        );
        assert!(plain.losses().is_empty());
    }
}

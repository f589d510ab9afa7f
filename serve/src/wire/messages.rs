//! Messages: lists, one of them, and what a push did.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dueq::outcomes::PushOutcome;
use dueq::{MessageState, OnExpire, Receipt, StoredMessage};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::wire::life::LifeEntry;
use crate::wire::workers::Holder;

/// The id of a message.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct Id {
    /// The id; bytes that are not UTF-8 are replaced.
    pub(crate) id: String,
    /// The same in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id_base64: Option<String>,
}

impl Id {
    pub(crate) fn new(id: &[u8]) -> Self {
        let is_text = std::str::from_utf8(id).is_ok();
        Self {
            id: String::from_utf8_lossy(id).into_owned(),
            id_base64: (!is_text).then(|| STANDARD.encode(id)),
        }
    }
}

/// The time of a message: which one depends on its state.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct Times {
    /// When it is due, if it is scheduled or ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) due_ms: Option<u64>,
    /// When its lease ends, if it is leased.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) leased_until_ms: Option<u64>,
    /// When it died, if it is dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) died_ms: Option<u64>,
}

impl Times {
    pub(crate) fn new(state: MessageState, time_ms: u64) -> Self {
        let time = Some(time_ms);
        match state {
            MessageState::Scheduled | MessageState::Ready => Self {
                due_ms: time,
                ..Self::default()
            },
            MessageState::Leased => Self {
                leased_until_ms: time,
                ..Self::default()
            },
            MessageState::Dead => Self {
                died_ms: time,
                ..Self::default()
            },
        }
    }

    fn due(due_ms: Option<u64>) -> Self {
        Self {
            due_ms,
            ..Self::default()
        }
    }
}

/// What a push did.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct PushedMessage {
    #[serde(flatten)]
    pub(crate) id: Id,
    /// `created`: the message is stored. `exists`: the queue has a message of this id, and nothing
    /// was changed. `moved`: the waiting message was rescheduled or replaced. `next`: a handler has
    /// the message, and this one follows it. `remembered`: a push with a window stored the id, and
    /// its message has ended. `finished`: this call stored the message, which has ended since; or,
    /// with `undo_ms`, the id was pushed or cancelled again since that cancel.
    pub(crate) outcome: String,
    /// The state of the message that exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<String>,
    #[serde(flatten)]
    pub(crate) times: Times,
    /// Until when pushes of the id store nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remembered_until_ms: Option<u64>,
}

impl PushedMessage {
    pub(crate) fn new(receipt: &Receipt) -> Self {
        let (mut state, mut until) = (None, None);
        match receipt.outcome() {
            PushOutcome::Exists(found) => state = Some(found.as_str().to_owned()),
            PushOutcome::Remembered(until_ms) => until = Some(until_ms),
            _ => {}
        }
        Self {
            id: Id::new(receipt.id_bytes()),
            outcome: word(receipt.outcome()).to_owned(),
            state,
            times: Times::due(receipt.due_ms()),
            remembered_until_ms: until,
        }
    }

    /// Adds the state and the time of the message that exists.
    pub(crate) fn existing(mut self, stored: &StoredMessage) -> Self {
        self.state = Some(stored.state.as_str().to_owned());
        self.times = Times::new(stored.state, stored.time_ms);
        self
    }
}

/// The word for the outcome in JSON.
pub(crate) fn word(outcome: PushOutcome) -> &'static str {
    match outcome {
        PushOutcome::Created => "created",
        PushOutcome::Exists(_) => "exists",
        PushOutcome::Moved => "moved",
        PushOutcome::Next => "next",
        PushOutcome::Remembered(_) => "remembered",
        PushOutcome::Finished => "finished",
        // A later release of the library may add an outcome: then this match lacks it.
        _ => "unknown",
    }
}

/// A message.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Message {
    #[serde(flatten)]
    pub(crate) id: Id,
    /// `scheduled`, `ready`, `leased` or `dead`.
    pub(crate) state: String,
    #[serde(flatten)]
    pub(crate) times: Times,
    /// How often a handler failed.
    pub(crate) failures: u32,
    /// How often a lease ran out.
    pub(crate) crashes: u32,
    /// How often a handler snoozed it.
    pub(crate) snoozes: u32,
    /// Its own limit of attempts, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_attempts: Option<u32>,
    /// How many starts of the queue's rate each attempt uses.
    pub(crate) cost: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) traceparent: Option<String>,
    /// When it expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at_ms: Option<u64>,
    /// How long after its due time it expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_after_ms: Option<u64>,
    /// What becomes of it then: `dead` or `drop`.
    pub(crate) on_expire: String,
    /// For how long after its push the queue remembers its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) window_ms: Option<u64>,
    /// Until when pushes can postpone it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) due_by_ms: Option<u64>,
    /// When the message is due that follows this leased one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_due_ms: Option<u64>,
    /// The name of the lease of a leased message: `end-lease` takes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease: Option<String>,
    /// The end of the id of the worker that has it, if the lease tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    /// When its delivery began, if it is leased and that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since_ms: Option<u64>,
    /// Whether it will be dead when this lease ends without an ack, because an operator buried it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) is_to_bury: Option<bool>,
    /// The worker that has it; missing if the lease does not tell it, or the worker told nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holder: Option<Holder>,
    /// What happened to it, the last 20 events, if the queue keeps that: its limit `keep_life_ms`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) life: Vec<LifeEntry>,
    /// What the last failure or burial said; empty if there was none.
    pub(crate) error: String,
    #[serde(flatten)]
    pub(crate) payload: Payload,
}

/// The payload of a message, or its first bytes.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct Payload {
    /// The payload, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload: Option<String>,
    /// The payload in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload_base64: Option<String>,
    /// How many bytes the whole payload has.
    pub(crate) payload_bytes: u64,
    /// Whether these are only its first bytes.
    pub(crate) payload_truncated: bool,
    /// Whether the caller may not read payloads.
    pub(crate) payload_withheld: bool,
}

impl Payload {
    /// `bytes` are the first bytes of a payload with `all` bytes in total.
    pub(crate) fn new(bytes: Vec<u8>, all: u64, is_withheld: bool) -> Self {
        let is_truncated = (bytes.len() as u64) < all;
        let mut payload = Self {
            payload: None,
            payload_base64: None,
            payload_bytes: all,
            payload_truncated: is_truncated && !is_withheld,
            payload_withheld: is_withheld,
        };
        if is_withheld {
            return payload;
        }
        match String::from_utf8(bytes) {
            Ok(text) => payload.payload = Some(text),
            Err(error) => {
                // The cut may fall within a character.
                let (valid, is_cut) = {
                    let error = error.utf8_error();
                    (error.valid_up_to(), error.error_len().is_none())
                };
                let mut bytes = error.into_bytes();
                if is_truncated && is_cut {
                    bytes.truncate(valid);
                    payload.payload = String::from_utf8(bytes).ok();
                } else {
                    payload.payload_base64 = Some(STANDARD.encode(bytes));
                }
            }
        }
        payload
    }
}

impl Message {
    pub(crate) fn new(id: &[u8], stored: StoredMessage, is_withheld: bool) -> Self {
        let lease = stored.lease.as_ref();
        Self {
            id: Id::new(id),
            state: stored.state.as_str().to_owned(),
            times: Times::new(stored.state, stored.time_ms),
            failures: stored.failures,
            crashes: stored.crashes,
            snoozes: stored.snoozes,
            max_attempts: stored.max_attempts,
            cost: stored.cost,
            traceparent: stored.trace_parent,
            expires_at_ms: stored.expires_at_ms,
            expires_after_ms: stored.expires_after_ms,
            on_expire: match stored.on_expire {
                OnExpire::Drop => "drop".to_owned(),
                _ => "dead".to_owned(),
            },
            window_ms: stored.window_ms,
            due_by_ms: stored.due_by_ms,
            next_due_ms: stored.next_due_ms,
            since_ms: lease.and_then(|lease| lease.since_ms),
            is_to_bury: lease.map(|lease| lease.is_to_bury),
            node: lease.and_then(|lease| lease.node.clone()),
            lease: lease.map(|lease| lease.name.clone()),
            holder: None,
            life: stored.life.into_iter().map(LifeEntry::from).collect(),
            error: stored.error,
            payload: Payload::new(stored.payload, stored.payload_bytes, is_withheld),
        }
    }
}

/// A page of messages in one state.
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct Messages {
    pub(crate) messages: Vec<ListedMessage>,
    /// The address of the next page; null at the end. The header `Link` has it too.
    pub(crate) next: Option<String>,
}

/// A message of a list.
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct ListedMessage {
    #[serde(flatten)]
    pub(crate) id: Id,
    #[serde(flatten)]
    pub(crate) times: Times,
    /// How often a handler failed.
    pub(crate) failures: u32,
    /// How often a lease ran out.
    pub(crate) crashes: u32,
    /// The first line of what the last failure or burial said; empty if there was none.
    pub(crate) error: String,
    /// When its delivery began, if it is leased and that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) since_ms: Option<u64>,
    /// The end of the id of the worker that has it, if the lease tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    /// The first bytes of its payload, if the call asked for them.
    #[serde(default, flatten)]
    pub(crate) payload: Option<Payload>,
    /// The address of the message.
    pub(crate) href: String,
}

impl Times {
    /// The time that the message's state has.
    pub(crate) fn ms(&self) -> u64 {
        let times = [self.due_ms, self.leased_until_ms, self.died_ms];
        times.into_iter().flatten().next().unwrap_or_default()
    }
}

impl ListedMessage {
    /// The id as a path segment.
    pub(crate) fn segment(&self) -> &str {
        self.href.rsplit('/').next().unwrap_or_default()
    }
}

impl Payload {
    /// The payload bytes that were sent.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match (&self.payload, &self.payload_base64) {
            (Some(text), _) => text.clone().into_bytes(),
            (None, Some(encoded)) => STANDARD.decode(encoded).unwrap_or_default(),
            (None, None) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_is_text_or_base64_and_cut_between_characters() {
        let payload = |bytes: &[u8], all| Payload::new(bytes.to_vec(), all, false);
        let text = payload(b"a\xc3\xa4", 3);
        assert_eq!(text.payload.as_deref(), Some("a\u{e4}"));
        assert!(!text.payload_truncated);
        let cut = payload(b"a\xc3", 3);
        assert_eq!(cut.payload.as_deref(), Some("a"));
        assert!(cut.payload_truncated && cut.payload_base64.is_none());
        // The payload is not cut, but ends within a character: it is binary.
        let binary = payload(b"a\xc3", 2);
        assert_eq!(binary.payload_base64.as_deref(), Some("YcM="));
        let binary = payload(b"\xff\xc3", 3);
        assert_eq!(binary.payload_base64.as_deref(), Some("/8M="));
        let withheld = Payload::new(b"secret".to_vec(), 6, true);
        assert!(withheld.payload.is_none() && withheld.payload_withheld);
    }
}

//! What an answer says of a delivery.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dueq::Delivery;
use serde::Serialize;
use utoipa::ToSchema;

/// A claimed message.
#[derive(Serialize, ToSchema)]
#[schema(as = Delivery)]
pub(super) struct Shown<'a> {
    /// Settles and extends this delivery. Pass it on as it is.
    handle: String,
    /// The id; bytes that are not UTF-8 are replaced.
    id: Cow<'a, str>,
    /// The same in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    id_base64: Option<String>,
    /// When it was due.
    due_ms: u64,
    /// When its lease ends.
    leased_until_ms: u64,
    /// Which attempt this is: the failures and crashes before it, and one.
    attempt: u32,
    /// Whether the message is dead if this attempt fails.
    last_attempt: bool,
    /// How often a handler failed.
    failures: u32,
    /// How often a lease ran out.
    crashes: u32,
    /// How often a handler snoozed it.
    snoozes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    /// When it expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at_ms: Option<u64>,
    /// The schedule that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    tick: Option<Tick>,
    /// The payload, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a str>,
    /// The payload in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

/// Which fire of which schedule made the message.
#[derive(Serialize, ToSchema)]
pub(super) struct Tick {
    schedule: String,
    /// The planned time.
    nominal_ms: u64,
}

impl<'a> Shown<'a> {
    pub(super) fn new(delivery: &'a Delivery) -> Self {
        let (id, payload) = (delivery.id_bytes(), delivery.payload());
        let text = std::str::from_utf8(payload).ok();
        let (attempt, crashes) = (delivery.attempt(), delivery.crashes());
        Self {
            handle: delivery.handle().to_string(),
            id: delivery.id(),
            id_base64: std::str::from_utf8(id)
                .is_err()
                .then(|| STANDARD.encode(id)),
            due_ms: delivery.due_ms(),
            leased_until_ms: delivery.deadline_ms(),
            attempt,
            last_attempt: delivery.is_last_attempt(),
            failures: attempt.saturating_sub(crashes).saturating_sub(1),
            crashes,
            snoozes: delivery.snoozes(),
            traceparent: delivery.trace_parent(),
            expires_at_ms: delivery.expires_at_ms(),
            tick: delivery.tick().map(|tick| Tick {
                schedule: tick.schedule,
                nominal_ms: tick.nominal_ms,
            }),
            payload: text,
            payload_base64: text.is_none().then(|| STANDARD.encode(payload)),
        }
    }
}

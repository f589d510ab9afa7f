//! The JSON of a message, as the OpenAPI document describes it. `dueq_input` reads it.

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// A message to push. It has `payload` or `payload_base64`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::routes) struct NewMessage {
    /// A string, whose characters are stored without the quotes; or any other JSON value, whose text
    /// is stored.
    payload: Option<Value>,
    /// The bytes of the payload.
    payload_base64: Option<String>,
    /// The id, 1 to 200 bytes. In the call that has the id in its path it must be the same.
    id: Option<String>,
    /// How long after the push it is due: `48h`, `1h30m`. Without `delay` and `at` it is due now.
    delay: Option<String>,
    /// When it is due: RFC 3339, Unix milliseconds as a string, or a local time with `tz`.
    at: Option<String>,
    /// Business hours, such as `Mon-Fri 09:00-18:00`: a due time outside them moves to their next
    /// opening. It needs `tz`.
    within: Option<String>,
    /// The time zone of `within`, and of times without one: `Europe/Paris`.
    tz: Option<String>,
    /// It is due up to so much later, by its id.
    spread_ms: Option<u64>,
    /// How long after its due time the last attempt may start.
    expires: Option<String>,
    /// The last moment at which an attempt may start.
    expires_at: Option<String>,
    /// What becomes of it when it expires: `dead` or `drop`.
    on_expire: Option<String>,
    /// How many starts of the queue's rate each attempt uses.
    #[schema(minimum = 1, maximum = 1_000_000)]
    cost: Option<u32>,
    /// After how many failed attempts it is dead.
    #[schema(minimum = 1, maximum = 1_000_000)]
    max_attempts: Option<u32>,
    /// The W3C trace context of the push.
    traceparent: Option<String>,
    /// What the push does if a message of the id waits: `keep`, `reschedule`, `replace` or `next`.
    on_conflict: Option<String>,
    /// For how long the queue remembers the id, whatever becomes of the message.
    window: Option<String>,
    /// How long after the first push later ones can postpone it.
    max_wait: Option<String>,
    /// Whether to push although the id is remembered.
    reuse: Option<bool>,
    /// Whether to replace a dead message.
    revive: Option<bool>,
}

/// One message, or many.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum NewMessages {
    One(Box<NewMessage>),
    Many(ManyMessages),
}

/// Many messages.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct ManyMessages {
    #[schema(max_items = 1_000)]
    messages: Vec<NewMessage>,
}

//! The JSON schema of a message for the OpenAPI document. `dueq_input` parses the messages.

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
    #[schema(format = "byte")]
    payload_base64: Option<String>,
    /// The id, 1 to 200 bytes. In the call that has the id in its path it must be the same.
    #[schema(format = "message-id", min_length = 1, max_length = 200)]
    id: Option<String>,
    /// How long after the push it is due: `48h`, `1h30m`. Without `delay` and `at` it is due now.
    #[schema(format = "delay", min_length = 1)]
    delay: Option<String>,
    /// When it is due: RFC 3339, Unix milliseconds as a string, or a local time with `tz`.
    #[schema(format = "moment", min_length = 1)]
    at: Option<String>,
    /// Business hours, such as `Mon-Fri 09:00-18:00`: a due time outside them moves to their next
    /// opening. It needs `tz`.
    #[schema(format = "business-hours", min_length = 1)]
    within: Option<String>,
    /// The time zone of `within`, and of times without one: `Europe/Paris`.
    #[schema(format = "time-zone", min_length = 1)]
    tz: Option<String>,
    /// It is due up to so much later, by its id.
    #[schema(maximum = 3_155_760_000_000_u64)]
    spread_ms: Option<u64>,
    /// How long after its due time the last attempt may start.
    #[schema(format = "period", min_length = 1)]
    expires: Option<String>,
    /// The last moment at which an attempt may start.
    #[schema(format = "moment", min_length = 1)]
    expires_at: Option<String>,
    /// What becomes of it when it expires: `dead` or `drop`.
    #[schema(inline)]
    on_expire: Option<Fate>,
    /// How many starts of the queue's rate each attempt uses.
    #[schema(minimum = 1, maximum = 1_000_000)]
    cost: Option<u32>,
    /// After how many failed attempts it is dead.
    #[schema(minimum = 1, maximum = 1_000_000)]
    max_attempts: Option<u32>,
    /// The W3C trace context of the push.
    #[schema(pattern = "^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$")]
    traceparent: Option<String>,
    /// What the push does if a message of the id waits: `keep`, `reschedule`, `replace` or `next`.
    #[schema(inline)]
    on_conflict: Option<Conflict>,
    /// For how long the queue remembers the id, whatever becomes of the message.
    #[schema(format = "window", min_length = 1)]
    window: Option<String>,
    /// How long after the first push later ones can postpone it.
    #[schema(format = "period", min_length = 1)]
    max_wait: Option<String>,
    /// Whether to push although the id is remembered.
    reuse: Option<bool>,
    /// Whether to replace a dead message.
    revive: Option<bool>,
    /// `undo_ms` of the answer to a cancel: the message is stored only if nothing has happened to its
    /// id since, and within 12 s.
    #[schema(minimum = 1, maximum = 9_999_999_999_999_u64)]
    undo_ms: Option<u64>,
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Fate {
    Dead,
    Drop,
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Conflict {
    Keep,
    Reschedule,
    Replace,
    Next,
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
    /// A wrong one is refused alone, and the others are pushed.
    #[schema(max_items = 1_000)]
    messages: Vec<NewMessage>,
}

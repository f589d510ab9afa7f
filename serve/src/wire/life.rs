//! The life of a message, if its queue keeps it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An event in the life of a message.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = LifeEvent)]
pub(crate) struct LifeEntry {
    /// When it happened, by the clock of Redis; of an attempt, when it ended.
    pub(crate) at_ms: u64,
    /// What happened: the name of the call, such as `push`, `retry` or `cancel`. Or `tick`: a
    /// schedule made the message; `undo`: a push undid a cancel; `next`: it followed a delivery of
    /// its id; `crash`: the lease of an attempt ended; `expired`.
    pub(crate) what: String,
    /// The due time that the message got; of an attempt, that of its claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) due_ms: Option<u64>,
    /// When the attempt began, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) began_ms: Option<u64>,
    /// For how long the attempt ran; missing after a crash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ran_ms: Option<u64>,
    /// The end of the id of the worker that had it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    /// The first 200 bytes of the error, or of the reason of a burial; missing if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) error: String,
}

impl From<dueq::inspect::LifeEvent> for LifeEntry {
    fn from(event: dueq::inspect::LifeEvent) -> Self {
        Self {
            ran_ms: event.ran_ms(),
            at_ms: event.at_ms,
            what: event.what,
            due_ms: event.due_ms,
            began_ms: event.began_ms,
            node: event.node,
            error: event.error,
        }
    }
}

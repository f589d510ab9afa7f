//! A message as `/v1` answers it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

#[derive(Deserialize)]
pub(super) struct Message {
    pub(super) state: String,
    pub(super) due_ms: Option<u64>,
    pub(super) leased_until_ms: Option<u64>,
    pub(super) died_ms: Option<u64>,
    pub(super) failures: u32,
    pub(super) crashes: u32,
    pub(super) snoozes: u32,
    pub(super) max_attempts: Option<u32>,
    pub(super) cost: u32,
    pub(super) traceparent: Option<String>,
    pub(super) expires_at_ms: Option<u64>,
    pub(super) expires_after_ms: Option<u64>,
    pub(super) on_expire: String,
    pub(super) window_ms: Option<u64>,
    pub(super) due_by_ms: Option<u64>,
    pub(super) next_due_ms: Option<u64>,
    pub(super) lease: Option<String>,
    pub(super) node: Option<String>,
    pub(super) error: String,
    pub(super) payload: Option<String>,
    pub(super) payload_base64: Option<String>,
    pub(super) payload_bytes: u64,
    pub(super) payload_truncated: bool,
    pub(super) payload_withheld: bool,
}

impl Message {
    /// The bytes of the payload, or its first ones.
    pub(super) fn payload_bytes(&self) -> Vec<u8> {
        match (&self.payload, &self.payload_base64) {
            (Some(text), _) => text.clone().into_bytes(),
            (None, Some(encoded)) => STANDARD.decode(encoded).unwrap_or_default(),
            (None, None) => Vec::new(),
        }
    }
}

//! The messages that are pushed: 100 bytes each, beginning with the due time.

use std::time::{SystemTime, UNIX_EPOCH};

/// The length of a payload.
const PAYLOAD_BYTES: usize = 100;
/// The number of digits of the due time.
const DIGITS: usize = 13;

/// A message to push.
#[derive(Debug, Clone)]
pub struct Message {
    /// The due time in Unix milliseconds; `None` for at once.
    pub due_ms: Option<u64>,
    /// The payload of the message.
    pub payload: Vec<u8>,
}

impl Message {
    /// A message that is due at this time, or at once.
    pub fn new(due_ms: Option<u64>) -> Self {
        let shown = due_ms.unwrap_or_else(|| unix_us() / 1_000);
        let mut payload = format!("{shown:0DIGITS$}").into_bytes();
        payload.resize(PAYLOAD_BYTES, b'x');
        Self { due_ms, payload }
    }

    /// The delay until the due time, in milliseconds: for systems that accept only delays.
    pub fn delay_ms(&self) -> u64 {
        self.due_ms
            .map_or(0, |due| due.saturating_sub(unix_us() / 1_000))
    }
}

/// The intended due time of the message with this payload, in Unix milliseconds.
pub fn due_of(payload: &[u8]) -> Option<u64> {
    std::str::from_utf8(payload.get(..DIGITS)?)
        .ok()?
        .parse()
        .ok()
}

/// This machine's clock, in Unix microseconds. All measured processes run on one machine.
pub fn unix_us() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| {
            u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_has_a_hundred_bytes_and_the_due_time() {
        let message = Message::new(Some(1_800_000_000_123));
        assert_eq!(message.payload.len(), 100);
        assert_eq!(due_of(&message.payload), Some(1_800_000_000_123));
        assert_eq!(due_of(b"123"), None);
        assert_eq!(due_of(b"not a number at all"), None);
        assert!(due_of(&Message::new(None).payload).is_some());
    }
}

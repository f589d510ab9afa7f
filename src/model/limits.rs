//! The limits of a queue that an operator sets.

use std::time::Duration;

use crate::model::due::ceil_ms;

/// Limits of a queue, to be set with [`Queue::configure`](crate::Queue::configure). Limits that are
/// not set stay as they are.
///
/// ```
/// let limits = dueq::Limits::new().max_attempts(5).max_payload_bytes(4 * 1024 * 1024);
/// # let _ = limits;
/// ```
#[derive(Debug, Clone, Default)]
pub struct Limits(pub(crate) Vec<(&'static str, String)>);

impl Limits {
    /// Nothing set.
    pub fn new() -> Self {
        Self::default()
    }

    /// After how many failed attempts a message without a limit of its own is dead: 1 to 1,000,000,
    /// 20 unless set.
    #[must_use]
    pub fn max_attempts(self, max_attempts: u32) -> Self {
        self.with("max_attempts", max_attempts.to_string())
    }

    /// How many crashes (leases that ran out) a message survives: 0 to 1,000,000, 5 unless set.
    #[must_use]
    pub fn max_crashes(self, max_crashes: u32) -> Self {
        self.with("max_crashes", max_crashes.to_string())
    }

    /// How many messages the queue may hold, in all states together; `None`, the default, for no
    /// limit.
    #[must_use]
    pub fn max_messages(self, max_messages: Option<u64>) -> Self {
        self.with(
            "max_messages",
            max_messages
                .map(|number| number.to_string())
                .unwrap_or_default(),
        )
    }

    /// The largest payload it takes in bytes: 1 to 16 MiB, 1 MiB unless set.
    #[must_use]
    pub fn max_payload_bytes(self, max_payload_bytes: u32) -> Self {
        self.with("max_payload_bytes", max_payload_bytes.to_string())
    }

    /// How long dead messages are kept: 1 ms to 100 years, 30 days unless set.
    #[must_use]
    pub fn keep_dead_for(self, time: Duration) -> Self {
        self.with("dead_keep_ms", ceil_ms(time).to_string())
    }

    /// How many dead messages are kept, the newest: at least 1, 100,000 unless set.
    #[must_use]
    pub fn keep_dead(self, number: u64) -> Self {
        self.with("dead_keep", number.to_string())
    }

    fn with(mut self, name: &'static str, value: String) -> Self {
        self.0.push((name, value));
        self
    }
}

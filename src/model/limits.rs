//! The limits of a queue that an operator sets.

use std::time::Duration;

use crate::model::due::ceil_ms;
use crate::model::stats::Stats;

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

    /// The limits that these stats tell, with `factor` times what is divided among partitions.
    pub(crate) fn of_stats(stats: &Stats, factor: u64) -> Self {
        let small = |limit: u64| u32::try_from(limit).unwrap_or(u32::MAX);
        let max_messages = stats.max_messages.saturating_mul(factor);
        Self::new()
            .max_attempts(small(stats.max_attempts))
            .max_crashes(small(stats.max_crashes))
            .max_messages((max_messages > 0).then_some(max_messages))
            .max_payload_bytes(small(stats.max_payload_bytes))
            .keep_dead_for(Duration::from_millis(stats.keep_dead_ms))
            .keep_dead(stats.keep_dead.saturating_mul(factor))
    }

    /// The arguments of `configure` at each of so many partitions: names and values.
    pub(crate) fn of_partition(&self, partitions: usize) -> Vec<Vec<u8>> {
        let shared = ["max_messages", "dead_keep"];
        let of_one = |name: &str, value: &str| match value.parse::<u64>() {
            Ok(total) if shared.contains(&name) => total.div_ceil(partitions as u64).to_string(),
            _ => value.to_owned(),
        };
        let pair = |(name, value): &(&str, String)| {
            [name.as_bytes().to_vec(), of_one(name, value).into_bytes()]
        };
        self.0.iter().flat_map(pair).collect()
    }

    fn with(mut self, name: &'static str, value: String) -> Self {
        self.0.push((name, value));
        self
    }
}

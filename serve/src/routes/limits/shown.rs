//! The limits of a queue as they are sent: with the fields of `dueq configure --json`.

use serde::Serialize;
use utoipa::ToSchema;

/// The limits of a queue.
#[derive(Serialize, ToSchema)]
pub(in crate::routes) struct Limits {
    /// After how many failed attempts a message is dead, unless it has its own limit.
    max_attempts: u64,
    /// How many crashes a message survives.
    max_crashes: u64,
    /// How many messages the queue may hold; null for no limit.
    max_messages: Option<u64>,
    /// The largest payload that it takes.
    max_payload_bytes: u64,
    /// How long dead messages are kept.
    keep_dead_ms: u64,
    /// How many dead messages are kept, the newest.
    keep_dead: u64,
    /// How many messages start in any `rate_window_ms` at most; null for no limit.
    rate: Option<u64>,
    /// The window of the rate.
    rate_window_ms: Option<u64>,
    /// How many messages of the rate may start at once.
    burst: Option<u64>,
    /// How many messages may be leased at once; null for no limit.
    max_leased: Option<u64>,
    /// For how long a throttle closes the queue at most.
    max_throttle_ms: u64,
    /// How many ids and calls the queue remembers.
    max_remembered: u64,
}

impl Limits {
    pub(in crate::routes) fn new(stats: &dueq::Stats) -> Self {
        let limited = |most: u64| Some(most).filter(|most| *most > 0);
        let rate = stats.rate;
        let window_ms = |rate: dueq::Rate| u64::try_from(rate.window.as_millis());
        Self {
            max_attempts: stats.max_attempts,
            max_crashes: stats.max_crashes,
            max_messages: limited(stats.max_messages),
            max_payload_bytes: stats.max_payload_bytes,
            keep_dead_ms: stats.keep_dead_ms,
            keep_dead: stats.keep_dead,
            rate: rate.map(|rate| rate.starts),
            rate_window_ms: rate.map(|rate| window_ms(rate).unwrap_or(u64::MAX)),
            burst: rate.map(|rate| rate.burst),
            max_leased: limited(stats.max_leased),
            max_throttle_ms: stats.max_throttle_ms,
            max_remembered: stats.max_remembered,
        }
    }
}

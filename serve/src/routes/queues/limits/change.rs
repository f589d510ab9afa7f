//! The request that changes the limits of a queue.

use std::time::Duration;

use dueq::QueueLimits;
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use crate::edge::problem::{Code, Problem};

/// 100 years of 365.25 days.
const CENTURY_MS: u64 = 3_155_760_000_000;
/// The largest number that scripts count with.
const MOST: u64 = 1_000_000_000_000_000;

/// The limits to set. At least one; `rate_window_ms` and `burst` alone are none.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LimitsChange)]
pub(super) struct Change {
    /// After how many failed attempts a message is dead, unless it has its own limit.
    #[serde(default, deserialize_with = "number")]
    #[schema(value_type = u64, required = false, minimum = 1, maximum = 1_000_000)]
    max_attempts: Option<u64>,
    /// How many crashes a message survives.
    #[serde(default, deserialize_with = "number")]
    #[schema(value_type = u64, required = false, minimum = 0, maximum = 1_000_000)]
    max_crashes: Option<u64>,
    /// How many messages the queue may hold; null for no limit.
    #[serde(default, deserialize_with = "number_or_null")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    max_messages: Option<Option<u64>>,
    /// The largest payload that it takes.
    #[serde(default, deserialize_with = "number")]
    #[schema(value_type = u64, required = false, minimum = 1, maximum = 16_777_216)]
    max_payload_bytes: Option<u64>,
    /// How long dead messages are kept.
    #[serde(default, deserialize_with = "number")]
    #[schema(value_type = u64, required = false, minimum = 1, maximum = 3_155_760_000_000_u64)]
    keep_dead_ms: Option<u64>,
    /// How many dead messages are kept, the newest.
    #[serde(default, deserialize_with = "number")]
    #[schema(value_type = u64, required = false, minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    keep_dead: Option<u64>,
    /// How many messages start in any `rate_window_ms` at most; null for no limit.
    #[serde(default, deserialize_with = "number_or_null")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000)]
    rate: Option<Option<u64>>,
    /// The window of the rate: up to 30 days. It is set together with `rate`, and goes with it.
    #[serde(default, deserialize_with = "number_or_null")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 2_592_000_000_u64)]
    rate_window_ms: Option<Option<u64>>,
    /// How many messages of the rate may start at once: 1 to `rate`. It is set together with `rate`;
    /// without it 1, or as many as 5 ms hold at a rate above 200 a second.
    #[serde(default, deserialize_with = "number_or_null")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000)]
    burst: Option<Option<u64>>,
    /// How many messages may be leased at once; null for no limit.
    #[serde(default, deserialize_with = "number_or_null")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000)]
    max_leased: Option<Option<u64>>,
    /// For how long a throttle closes the queue at most.
    #[serde(default, deserialize_with = "number")]
    #[schema(value_type = u64, required = false, minimum = 1, maximum = 3_155_760_000_000_u64)]
    max_throttle_ms: Option<u64>,
    /// How many ids and calls the queue remembers.
    #[serde(default, deserialize_with = "number")]
    #[schema(value_type = u64, required = false, minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    max_remembered: Option<u64>,
    /// For how long what happened to a message is kept after its end; 0: not after it. Null: it is
    /// not kept at all. A number gives the queue layout 5, which clients of an older version refuse.
    #[serde(default, deserialize_with = "number_or_null")]
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 3_155_760_000_000_u64)]
    keep_life_ms: Option<Option<u64>>,
}

/// Parses a number, and refuses null: this limit cannot be removed.
fn number<'de, D: Deserializer<'de>>(field: D) -> Result<Option<u64>, D::Error> {
    u64::deserialize(field).map(Some)
}

fn number_or_null<'de, D: Deserializer<'de>>(field: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(field).map(Some)
}

impl Change {
    /// The new limits, each checked against its range. The library checks the rate.
    pub(super) fn limits(&self) -> Result<QueueLimits, Problem> {
        let mut limits = QueueLimits::new();
        let mut is_empty = true;
        let mut given = |name: &str, value: Option<u64>, least: u64, most: u64| {
            let Some(value) = value else { return Ok(None) };
            is_empty = false;
            if (least..=most).contains(&value) {
                return Ok(Some(value));
            }
            let detail =
                format!("{name} is {value}: write {least} to {most} (nothing was changed)");
            Err(Problem::new(Code::InvalidInput, detail))
        };
        if let Some(most) = given("max_attempts", self.max_attempts, 1, 1_000_000)? {
            limits = limits.max_attempts(small(most));
        }
        if let Some(most) = given("max_crashes", self.max_crashes, 0, 1_000_000)? {
            limits = limits.max_crashes(small(most));
        }
        if let Some(most) = given("max_messages", self.max_messages.flatten(), 1, MOST)? {
            limits = limits.max_messages(Some(most));
        }
        if let Some(bytes) = given("max_payload_bytes", self.max_payload_bytes, 1, 16 << 20)? {
            limits = limits.max_payload_bytes(small(bytes));
        }
        if let Some(ms) = given("keep_dead_ms", self.keep_dead_ms, 1, CENTURY_MS)? {
            limits = limits.keep_dead_for(Duration::from_millis(ms));
        }
        if let Some(most) = given("keep_dead", self.keep_dead, 1, MOST)? {
            limits = limits.keep_dead(most);
        }
        if let Some(most) = given("max_leased", self.max_leased.flatten(), 1, 1_000_000)? {
            limits = limits.max_leased(small(most));
        }
        if let Some(ms) = given("max_throttle_ms", self.max_throttle_ms, 1, CENTURY_MS)? {
            limits = limits.max_throttle(Duration::from_millis(ms));
        }
        if let Some(ids) = given("max_remembered", self.max_remembered, 1, MOST)? {
            limits = limits.max_remembered(ids);
        }
        if let Some(ms) = given("keep_life_ms", self.keep_life_ms.flatten(), 0, CENTURY_MS)? {
            limits = limits.keep_life_for(Duration::from_millis(ms));
        }
        let starts = given("rate", self.rate.flatten(), 1, 1_000_000)?;
        let window = given(
            "rate_window_ms",
            self.rate_window_ms.flatten(),
            1,
            2_592_000_000,
        )?;
        let burst = given(
            "burst",
            self.burst.flatten(),
            1,
            starts.unwrap_or(1_000_000),
        )?;
        limits = match (starts, window) {
            (Some(starts), Some(ms)) => limits.rate(small(starts), Duration::from_millis(ms)),
            (None, None) if burst.is_none() => limits,
            _ => {
                let reason = "rate, rate_window_ms and burst are set together: add \"rate\": 50, \"rate_window_ms\": 1000 \
                    (nothing was changed)";
                return Err(Problem::new(Code::InvalidInput, reason));
            }
        };
        if let Some(burst) = burst {
            limits = limits.burst(small(burst));
        }
        if self.rate == Some(None) {
            (limits, is_empty) = (limits.no_rate(), false);
        }
        if self.max_leased == Some(None) {
            (limits, is_empty) = (limits.no_max_leased(), false);
        }
        if self.max_messages == Some(None) {
            (limits, is_empty) = (limits.max_messages(None), false);
        }
        if self.keep_life_ms == Some(None) {
            (limits, is_empty) = (limits.keep_no_life(), false);
        }
        if is_empty {
            let reason = "no limit is named: add one, such as \"max_attempts\": 5";
            return Err(Problem::new(Code::InvalidInput, reason));
        }
        Ok(limits)
    }
}

/// Converts a number that was checked to be small.
fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

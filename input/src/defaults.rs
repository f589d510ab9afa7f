//! The values for fields that an object leaves out.

use std::time::Duration;

use dueq::OnConflict;
use jiff::Timestamp;

use crate::{Expiry, Last, Timing, Unique, When, Wording};

/// Returns the present time, for moments such as `now` and `today 20:00`.
pub type Clock = Box<dyn Fn() -> Timestamp + Send + Sync>;
/// Returns the present time of the server's clock in Unix milliseconds, for `within`; or why it is
/// not known.
pub type ServerClock = Box<dyn Fn() -> Result<u64, String> + Send + Sync>;

/// The values for fields that an object leaves out, and how to read its fields.
pub struct Defaults {
    /// How errors name options.
    pub wording: Wording,
    /// The present time.
    pub now: Clock,
    /// The present time by the server's clock.
    pub server_now_ms: ServerClock,
    /// The default due time.
    pub when: When,
    /// The parsed form of `when`.
    pub timing: Timing,
    /// The most by which the message is due later.
    pub spread: Option<Duration>,
    /// The expiry.
    pub expiry: Expiry,
    /// The parsed form of `expiry`.
    pub last: Option<Last>,
    /// What an attempt uses of the queue's rate.
    pub cost: Option<u32>,
    /// The number of failed attempts after which the message is dead.
    pub max_attempts: Option<u32>,
    /// What the push does if a message with the id is waiting.
    pub on_conflict: OnConflict,
    /// The options about other pushes of the id.
    pub unique: Unique,
    /// The trace of the push.
    pub traceparent: Option<String>,
}

impl Defaults {
    /// No default values: an object must have all fields that it needs. Only the clocks are given.
    pub fn new(wording: Wording, now: Clock, server_now_ms: ServerClock) -> Self {
        Self {
            wording,
            now,
            server_now_ms,
            when: When::default(),
            timing: Timing::default(),
            spread: None,
            expiry: Expiry::default(),
            last: None,
            cost: None,
            max_attempts: None,
            on_conflict: OnConflict::Keep,
            unique: Unique::default(),
            traceparent: None,
        }
    }

    /// No default values, for objects that come without flags. `now_ms` is the present time of the
    /// server's clock, in Unix milliseconds.
    pub fn fields(now_ms: u64) -> Self {
        let ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
        let now = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX);
        let server_now_ms = Box::new(move || Ok(now_ms));
        Self::new(Wording::Fields, Box::new(move || now), server_now_ms)
    }
}

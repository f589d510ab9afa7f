//! The values of callers: messages, ids, due times, retries, outcomes. Pure: no Redis, no tokio, no
//! clock.

#[cfg(any(test, feature = "business-hours"))]
pub(crate) mod business_hours;
pub(crate) mod codec;
pub(crate) mod due;
pub(crate) mod durability;
pub(crate) mod history;
pub(crate) mod lease_token;
pub(crate) mod life;
pub(crate) mod limits;
pub(crate) mod message;
pub(crate) mod options;
pub(crate) mod outcomes;
pub(crate) mod process;
pub(crate) mod push_rules;
pub(crate) mod rate;
pub(crate) mod reached;
pub(crate) mod receipt;
pub(crate) mod repartition;
pub(crate) mod retry;
pub(crate) mod schedule;
pub(crate) mod settlement;
pub(crate) mod stats;
pub(crate) mod stored;
#[cfg(any(test, feature = "business-hours", feature = "schedules"))]
pub(crate) mod zone;

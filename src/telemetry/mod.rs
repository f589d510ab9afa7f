//! What the library reports about its work: events by `tracing`, and metrics.

pub(crate) mod events;
pub(crate) mod metrics;
pub(crate) mod process;

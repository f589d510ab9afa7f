//! What dueq reports about itself: events by `tracing`, counts and times as metrics.

pub(crate) mod events;
pub(crate) mod metrics;

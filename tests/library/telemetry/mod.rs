//! What the library tells of its work: numbers, spans and events, and the trace of a message.

pub(crate) mod collector;
mod events;
mod metrics;
mod trace_parent;

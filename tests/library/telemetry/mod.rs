//! Telemetry of the library: metrics, spans, events, and the trace of a message.

pub(crate) mod collector;
mod events;
mod history;
mod metrics;
mod schedules;
mod trace_parent;

//! The consumers of messages: handlers and pulls, the permits that count them, and the leases of
//! their deliveries. This room runs what the coordinator hands over, and makes no claims itself.

pub(crate) mod batch_runner;
pub(crate) mod consumer;
pub(in crate::node) mod guard;
pub(crate) mod handling;
pub(in crate::node) mod lease;
pub(crate) mod pulls;
pub(crate) mod runner;
pub(in crate::node) mod settling;
pub(in crate::node) mod slots;

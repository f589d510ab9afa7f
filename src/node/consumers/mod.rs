//! What takes the messages: handlers and pulls, the permits that count them, and the leases of what
//! they hold. It runs what the coordinator hands it, and asks for nothing itself.

pub(crate) mod batch_runner;
pub(crate) mod consumer;
pub(in crate::node) mod guard;
pub(crate) mod handling;
pub(in crate::node) mod lease;
pub(crate) mod pulls;
pub(crate) mod runner;
pub(in crate::node) mod slots;

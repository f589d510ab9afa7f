//! What takes the messages: handlers and pulls, the permits that count them, and the leases of what
//! they hold.

pub(crate) mod batch_runner;
pub(crate) mod consumer;
pub(crate) mod guard;
pub(crate) mod handling;
pub(crate) mod lease;
pub(crate) mod pulls;
pub(crate) mod runner;
pub(crate) mod slots;

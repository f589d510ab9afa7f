//! Whether workers and callers did what the answers said: I15 of docs/protocol/guarantees.md, and
//! the shares of queues.

pub(super) mod callers;
pub(super) mod handlers;
pub(super) mod running;
pub(super) mod unseen;

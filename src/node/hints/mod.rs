//! What tells a node that something may be due: notices, wake-up tokens, new queues. A lost hint
//! makes a message late, and never wrong.

pub(crate) mod listeners;
pub(crate) mod scanner;
pub(crate) mod subscriptions;
pub(crate) mod wakes;

//! Hints that something may be due: notices, wake-up tokens, new queues. A lost hint makes a
//! message late, but never wrong.

pub(in crate::node) mod listeners;
pub(in crate::node) mod scanner;
pub(in crate::node) mod subscriptions;
pub(in crate::node) mod wakes;

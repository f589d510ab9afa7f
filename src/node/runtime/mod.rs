//! The thread of a node, its internal tasks and their supervision, and its precise timer. This room
//! does not know what the tasks do.

pub(in crate::node) mod catch_panic;
#[cfg(any(test, feature = "harness"))]
pub(crate) mod inject;
pub(in crate::node) mod precise_timer;
pub(in crate::node) mod task;
pub(in crate::node) mod tasks;
pub(in crate::node) mod thread;

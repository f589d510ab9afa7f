//! The thread of a node, its internal tasks and their supervision, and its precise timer.

pub(crate) mod catch_panic;
#[cfg(any(test, feature = "harness"))]
pub(crate) mod inject;
pub(crate) mod precise_timer;
pub(crate) mod task;
pub(crate) mod tasks;
pub(crate) mod thread;

//! A node: the machinery of one worker. It promotes due messages, claims them for the handlers,
//! extends their leases, settles them, and takes back leases of dead nodes.
//!
//! ```text
//!   notices, reply headers ─► NodeTimers ─► Coordinator ─► promote / reap / beat / extend
//!                                               │ ClaimRequests
//!   wake-up list ─────────────────────────► Claimer ─► HandlerRunner ─► settlements, in batches
//! ```
//!
//! `NodeTimers` decides what is due when, and is pure. The `Coordinator` task owns it and makes the
//! calls. The `Claimer` task claims messages while handlers are free. `run` starts and stops both.

pub(crate) mod batch_runner;
pub(crate) mod catch_panic;
pub(crate) mod claim_lease;
pub(crate) mod claim_requests;
pub(crate) mod claimer;
pub(crate) mod commands;
pub(crate) mod coordinator;
pub(crate) mod event;
pub(crate) mod handler_guard;
pub(crate) mod handler_runner;
pub(crate) mod handling;
pub(crate) mod health;
#[cfg(any(test, feature = "harness"))]
pub(crate) mod inject;
pub(crate) mod newest_reply;
pub(crate) mod notices;
pub(crate) mod panics;
pub(crate) mod precise_timer;
pub(crate) mod queue_number;
pub(crate) mod run;
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the coordinator of many queues will use it")
)]
pub(crate) mod shares;
pub(crate) mod slots;
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the node moves to it with its new core")
)]
pub(crate) mod tasks;
pub(crate) mod thread;
pub(crate) mod timers;
pub(crate) mod wake;

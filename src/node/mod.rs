//! A node: the machinery of one worker. It promotes due messages, claims them for the handlers,
//! extends their leases, settles them, and takes back leases of dead nodes.
//!
//! ```text
//!   notices, reply headers ─► NodeTimers ─┐
//!   wake-up lists ────────────────────────┴─► Coordinator ─► promote / reap / beat / extend
//!                                     Shares ─────┴────────► claim ─► handlers ─► settlements
//! ```
//!
//! A node attends any number of queues. The `Coordinator` task owns the state of each, and makes
//! all calls. `NodeTimers` decides what is due when, and `Shares` which queue gets the free
//! handlers; both are pure. The tasks of a node run on a thread of its own, so that a handler that
//! blocks threads of the caller's runtime delays no other queue. `run` starts and stops them.

pub(crate) mod attendance;
pub(crate) mod attended_queue;
pub(crate) mod attention;
pub(crate) mod batch_runner;
pub(crate) mod claim_lease;
pub(crate) mod claim_state;
pub(crate) mod coordinator;
pub(crate) mod deputies;
pub(crate) mod dispatch;
pub(crate) mod event;
pub(crate) mod granting;
pub(crate) mod handler_guard;
pub(crate) mod handler_runner;
pub(crate) mod handling;
pub(crate) mod health;
#[cfg(any(test, feature = "harness"))]
pub(crate) mod inject;
pub(crate) mod leaving;
pub(crate) mod listeners;
pub(crate) mod lost_claims;
pub(crate) mod membership;
pub(crate) mod newest_reply;
pub(crate) mod node_queue;
pub(crate) mod oldest_due;
pub(crate) mod precise_timer;
pub(crate) mod pulling;
pub(crate) mod pulls;
pub(crate) mod refills;
mod reporting;
pub(crate) mod rosters;
pub(crate) mod run;
pub(crate) mod scanner;
pub(crate) mod share_groups;
pub(crate) mod shares;
pub(crate) mod slots;
pub(crate) mod subscriptions;
pub(crate) mod tasks;
pub(crate) mod thread;
pub(crate) mod timers;
pub(crate) mod wakes;

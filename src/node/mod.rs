//! A node: one process's worker of one queue. What must be done when is kept by the timers (pure), carried out by the
//! coordinator; the claimer feeds the handlers.
//!
//! ```text
//!   notices, reply headers ─► timers ─► coordinator ─► promote / reap / beat / extend
//!   wake-up list ─► claimer ─► handlers ─► settles, sent together
//! ```

pub(crate) mod claim_lease;
pub(crate) mod claimer;
pub(crate) mod coordinator;
pub(crate) mod handler_runner;
pub(crate) mod newest_reply;
pub(crate) mod notices;
pub(crate) mod panics;
pub(crate) mod precise_timer;
pub(crate) mod run;
pub(crate) mod timers;
pub(crate) mod wake;

use std::sync::Arc;
use std::time::Instant;

use crate::error::Error;
use crate::partition::{Beat, Moved};
use crate::protocol::replies::Header;
use claim_lease::ClaimLease;

/// What the parts of a node tell the coordinator.
pub(crate) enum Event {
    /// A reply of some call, with what it says about the queue.
    Header(Header),
    /// The first scheduled message is due at this Unix millisecond now, or there is none.
    Notice(Option<u64>),
    /// Notices may have been missed: look for yourself.
    Resync,
    /// Something was claimed, and handlers are about to start.
    Claimed(Arc<ClaimLease>),
    /// All deliveries of the claim of this number were settled, or given up.
    Finished(u64),
    /// A promote, or the claim in its place, was answered: how many messages it moved.
    Promoted(Result<Moved, Error>),
    /// The claimer was told that something is due, and stopped instead.
    NotTaken,
    /// A reap was answered: how many leases it ended.
    Reaped(Result<Moved, Error>),
    /// A beat, sent at this instant, was answered.
    Beaten {
        sent: Instant,
        result: Result<Beat, Error>,
    },
}

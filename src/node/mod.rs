//! A node: one process's worker of one queue. What must be done when is kept by the agenda (pure), carried out by the
//! conductor; the claimer feeds the handlers.
//!
//! ```text
//!   notices, reply headers ─► agenda ─► conductor ─► promote / reap / beat / extend
//!   wake-up list ─► claimer ─► handlers ─► settles, sent together
//! ```

pub(crate) mod agenda;
pub(crate) mod alarm;
pub(crate) mod claimer;
pub(crate) mod conductor;
pub(crate) mod faults;
pub(crate) mod handler;
pub(crate) mod leased;
pub(crate) mod newest;
pub(crate) mod notices;
pub(crate) mod wake;

use std::sync::Arc;
use std::time::Instant;

use crate::error::Error;
use crate::protocol::replies::Header;
use leased::Leased;

/// What the parts of a node tell the conductor.
pub(crate) enum Event {
    /// A reply of some call, with what it says about the queue.
    Header(Header),
    /// The first scheduled message is due at this Unix millisecond now, or there is none.
    Notice(Option<u64>),
    /// Notices may have been missed: look for yourself.
    Resync,
    /// Something was claimed, and handlers are about to start.
    Claimed(Arc<Leased>),
    /// All deliveries of the claim of this number were settled, or given up.
    Finished(u64),
    /// A promote, or the claim in its place, was answered: how many messages it moved.
    Promoted(Result<(Header, u64), Error>),
    /// The claimer was told that something is due, and stopped instead.
    NotTaken,
    /// A reap was answered: how many leases it ended.
    Reaped(Result<(Header, u64), Error>),
    /// A beat, sent at this instant, was answered.
    Beaten {
        sent: Instant,
        result: Result<conductor::Beat, Error>,
    },
}

//! The events that the parts of a node send to its coordinator.

use std::sync::Arc;
use std::time::Instant;

use crate::error::Error;
use crate::node::claim_lease::ClaimLease;
use crate::protocol::replies::Header;
use crate::protocol::results::roles::{Beat, Moved};

/// Something the coordinator has to know.
pub(crate) enum Event {
    /// The header of a reply: it reports the state of the queue.
    Header(Header),
    /// A notice: the head is now due at this Unix millisecond, or the scheduled set is empty.
    Notice(Option<u64>),
    /// The subscription is new: notices before it were missed.
    Resync,
    /// A claim granted messages; their handlers are about to start.
    Claimed(Arc<ClaimLease>),
    /// Every delivery of the claim with this number has been settled or given up.
    ClaimEnded(u64),
    /// A promote, or the claim that replaced it, was answered.
    Promoted(Result<Moved, Error>),
    /// The claimer accepted a claim request, but stopped before it claimed.
    ClaimDeclined,
    /// A reap was answered.
    Reaped(Result<Moved, Error>),
    /// A beat was answered.
    Beat {
        /// When the beat was sent.
        sent: Instant,
        result: Result<Beat, Error>,
    },
}

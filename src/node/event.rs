//! The events that the parts of a node send to its coordinator.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::error::Error;
use crate::node::attention::Attended;
use crate::node::lost_claims::{LostGrant, OwnClaim};
use crate::node::membership::NodeCommand;
use crate::node::pulls::BoundPulls;
use crate::node::refills::RefillReply;
use crate::node::scanner::Found;
use crate::node::slots::HandlerPermits;
use crate::node::subscriptions::Hint;
use crate::protocol::partition_map::Tag;
use crate::protocol::results::administer::{Beat, Moved, Watched};
use crate::protocol::results::claim::Claim;
use crate::router::Partitions;

/// Something the coordinator has to know.
pub(crate) enum Event {
    /// A call for this queue was answered.
    Reply(QueueNumber, Reply),
    /// The subscription reports something.
    Hint(Hint),
    /// The scanner found queues.
    Found(Found),
    /// The user adds or removes a queue.
    Command(NodeCommand),
    /// A partition of a queue with a map answered a watch that was sent then.
    Watched(QueueNumber, Instant, Tag, Result<Watched, Error>),
    /// The map of a queue was read.
    Mapped(QueueNumber, Result<Arc<Partitions>, Error>),
}

/// The answer to a call of the coordinator.
pub(crate) enum Reply {
    Beat {
        /// When the beat was sent.
        sent: Instant,
        /// What it said.
        attended: Attended,
        result: Result<Beat, Error>,
    },
    Promoted(Result<Moved, Error>),
    Reaped(Result<Moved, Error>),
    Claimed(Box<Claimed>),
    /// The lease of a claim without a reply was read.
    LookedUp(Box<LostGrant>),
    Refilled(Box<RefillReply>),
    /// A wake-up token was given back, or the call failed.
    TokenReturned,
    /// The node has left the queue, or could not say so.
    Left,
}

/// A claim and its answer.
pub(crate) struct Claimed {
    /// When it was sent.
    pub(crate) sent: Instant,
    /// For how many messages it asked.
    pub(crate) asked: usize,
    pub(crate) permits: HandlerPermits,
    /// Its token, unless the caller of a pull has chosen it.
    pub(crate) own: Option<OwnClaim>,
    /// The pulls that it is for, if they take the place of a handler.
    pub(crate) bound: Option<BoundPulls>,
    /// Whether it replaced a promote.
    pub(crate) for_promote: bool,
    pub(crate) result: Result<Claim, Error>,
}

/// Identifies an attended queue within its node. A node never reuses a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct QueueNumber(pub(crate) u32);

impl fmt::Display for QueueNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

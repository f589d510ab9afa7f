//! The events that the parts of a node send to its coordinator.

use std::sync::Arc;
use std::time::Instant;

use crate::error::Error;
use crate::node::consumers::pulls::bound::BoundPulls;
use crate::node::consumers::slots::HandlerPermits;
use crate::node::coordinator::recovered::LostGrant;
use crate::node::coordinator::settings::NodeCommand;
use crate::node::hints::scanner::Found;
use crate::node::hints::subscriptions::Hint;
use crate::node::state::beat_mode::BeatMode;
use crate::node::state::lost_claim::OwnClaim;
use crate::node::state::refills::RefillReply;
use crate::node::{PartitionId, QueueId};
use crate::protocol::partition_map::Tag;
use crate::protocol::results::administer::{Beat, Moved, Watched};
use crate::protocol::results::claim::Claim;
use crate::router::Partitions;

/// Something the coordinator has to know.
pub(crate) enum Event {
    /// A call for this partition was answered.
    Reply(PartitionId, Reply),
    /// The subscription reports something.
    Hint(Hint),
    /// The scanner found queues.
    Found(Found),
    /// The user adds or removes a queue.
    Command(NodeCommand),
    /// A partition of a queue with a map answered a watch that was sent then.
    Watched(QueueId, Instant, Tag, Result<Watched, Error>),
    /// The map of a queue was read.
    Mapped(QueueId, Result<Arc<Partitions>, Error>),
}

/// The answer to a call of the coordinator.
pub(crate) enum Reply {
    Beat {
        /// When the beat was sent.
        sent: Instant,
        /// What it said.
        mode: BeatMode,
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

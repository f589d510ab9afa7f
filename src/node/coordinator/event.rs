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
    /// The answer to a call for this partition.
    Reply(PartitionId, Reply),
    /// A report of the subscription.
    Hint(Hint),
    /// A report of the scanner: queues that match a pattern.
    Found(Found),
    /// The user adds or removes a queue.
    Command(NodeCommand),
    /// The answer of a partition to a watch of the roster, and when the watch was sent.
    Watched(QueueId, Instant, Tag, Result<Watched, Error>),
    /// The answer to a read of a queue's map.
    Mapped(QueueId, Result<Arc<Partitions>, Error>),
}

/// The answer to a call of the coordinator.
pub(crate) enum Reply {
    Beat {
        /// When the beat was sent.
        sent: Instant,
        /// What the beat said about the node.
        mode: BeatMode,
        result: Result<Beat, Error>,
    },
    Promoted(Result<Moved, Error>),
    Reaped(Result<Moved, Error>),
    Claimed(Box<Claimed>),
    /// The answer to the read of a lost claim's lease.
    LookedUp(Box<LostGrant>),
    Refilled(Box<RefillReply>),
    /// A batch that was on its way to another partition has ended, or could not be ended.
    BatchEnded(Result<(), Error>),
    /// A wake-up token was given back, or that call failed.
    TokenReturned,
    /// The node has left the queue, or the call that reports it failed.
    Left,
}

/// A claim and its answer.
pub(crate) struct Claimed {
    /// When the claim was sent.
    pub(crate) sent: Instant,
    /// For how many messages the claim asked.
    pub(crate) asked: usize,
    pub(crate) permits: HandlerPermits,
    /// The claim's token, unless the caller of a pull has chosen it.
    pub(crate) own: Option<OwnClaim>,
    /// The pulls that the claim is for, if the queue has pulls instead of a handler.
    pub(crate) bound: Option<BoundPulls>,
    /// Whether the claim was sent instead of a promote.
    pub(crate) for_promote: bool,
    pub(crate) result: Result<Claim, Error>,
}

//! The replies to an operator's calls that go through a queue step by step: requeue, purge.

use crate::error::Error;
use crate::protocol::replies::Reply;

/// The reply to one step of a requeue of all dead messages, or of a purge.
pub(crate) struct Step {
    /// The server's clock at this step, in Unix microseconds.
    pub(crate) now_us: i64,
    /// The epoch of the partition's map.
    pub(crate) epoch: Option<u64>,
    /// How many messages the step dealt with.
    pub(crate) done: u64,
    /// How many are still there.
    pub(crate) left: u64,
}

impl Step {
    pub(crate) fn decode(mut reply: Reply) -> Result<Self, Error> {
        Ok(Self {
            now_us: reply.header.now_us,
            epoch: reply.header.epoch,
            done: reply.body.count()?,
            left: reply.body.count()?,
        })
    }
}

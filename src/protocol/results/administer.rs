//! The replies to an operator's calls: of a step of a requeue or purge, of the deletion of an unused queue.

use crate::error::Error;
use crate::model::outcomes::{Kept, Unused};
use crate::protocol::replies::Reply;

/// The reply to one step of a requeue of all dead messages, or of a purge.
pub(crate) struct Step {
    /// The server's clock at this step, in Unix milliseconds.
    pub(crate) now_ms: u64,
    /// Which creation of the queue it was; empty without a queue.
    pub(crate) incarnation: String,
    /// The epoch of the partition's map.
    pub(crate) epoch: Option<u64>,
    /// How many messages the step dealt with.
    pub(crate) done: u64,
    /// How many are still there.
    pub(crate) left: u64,
    /// How many timers of schedules a purge has passed: the next step begins behind them.
    pub(crate) passed: u64,
}

impl Step {
    pub(crate) fn decode(mut reply: Reply) -> Result<Self, Error> {
        Ok(Self {
            now_ms: u64::try_from(reply.header.now_us / 1_000).unwrap_or(0),
            incarnation: reply.header.incarnation,
            epoch: reply.header.epoch,
            done: reply.body.count()?,
            left: reply.body.count()?,
            passed: if reply.body.is_empty() {
                0
            } else {
                reply.body.count()?
            },
        })
    }

    /// Whether a purge ends, as the state has no further message.
    pub(crate) fn found_none(&self) -> bool {
        self.done == 0 && self.passed == 0
    }
}

/// The reply of the text that looks for an unused queue.
pub(crate) fn unused(text: &str) -> Option<Unused> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    match word {
        "ABSENT" => Some(Unused::Absent),
        "UNUSED" => rest.parse().ok().map(Unused::Since),
        "KEPT" => {
            let mut all = Kept::ALL.into_iter();
            all.find(|why| why.as_str() == rest).map(Unused::Kept)
        }
        _ => None,
    }
}

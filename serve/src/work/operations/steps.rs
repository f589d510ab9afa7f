//! The steps of a requeue or a purge.

use dueq::Error;
use dueq::admin::{BulkEnd, BulkSteps};

use crate::work::operations::group::GroupSteps;
use crate::work::operations::progress::{End, Stepped};

/// Makes the steps, and counts what they did.
pub(super) enum Steps {
    /// A script selects the messages and changes them, in one call.
    All(BulkSteps),
    /// The server selects, and there is a call for each message.
    Group(GroupSteps),
}

impl Steps {
    /// How many messages are done.
    pub(super) fn done(&self) -> u64 {
        match self {
            Self::All(steps) => steps.done(),
            Self::Group(steps) => steps.done(),
        }
    }

    /// The first messages of the next step. A step of at most `count` right after it changes no others.
    pub(super) async fn peek(&mut self, count: usize) -> Result<Vec<Vec<u8>>, Error> {
        match self {
            Self::All(steps) => steps.peek(count).await,
            Self::Group(steps) => steps.peek(count).await,
        }
    }

    /// The next step, of at most `limit` messages.
    pub(super) async fn step(&mut self, limit: usize) -> Result<Stepped, Error> {
        match self {
            Self::All(steps) => {
                let stepped = steps.step(limit).await?;
                Ok(Stepped {
                    of: stepped.left.map(|left| stepped.done + left),
                    end: stepped.end.map(|end| match end {
                        BulkEnd::QueueGone => End::QueueGone,
                        _ => End::Done,
                    }),
                })
            }
            Self::Group(steps) => steps.step(limit).await,
        }
    }
}

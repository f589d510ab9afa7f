//! The steps of a requeue or a purge.

use dueq::Error;
use dueq::admin::{BulkEnd, BulkSteps};

use crate::work::operations::group::GroupSteps;
use crate::work::operations::progress::{End, Stepped};

/// Runs the steps, and counts the changed messages.
pub(super) enum Steps {
    /// One script call per step selects and changes the messages.
    All(BulkSteps),
    /// This server selects the messages, and makes a call for each.
    Group(GroupSteps),
}

impl Steps {
    /// The number of changed messages.
    pub(super) fn done(&self) -> u64 {
        match self {
            Self::All(steps) => steps.done(),
            Self::Group(steps) => steps.done(),
        }
    }

    /// The first messages of the next step. If a step of at most `count` follows at once, it
    /// changes no other messages.
    pub(super) async fn peek(&mut self, count: usize) -> Result<Vec<Vec<u8>>, Error> {
        match self {
            Self::All(steps) => steps.peek(count).await,
            Self::Group(steps) => steps.peek(count).await,
        }
    }

    /// Runs the next step, with at most `limit` messages.
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

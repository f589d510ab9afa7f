//! The steps of a requeue, a purge, or a cancel without ids.

use dueq::Error;
use dueq::admin::{BulkEnd, BulkSteps};

use crate::wire::operations::Skipped;
use crate::work::operations::picked::PickedSteps;
use crate::work::operations::progress::{End, Stepped};

/// Runs the steps, and counts the changed messages.
pub(super) enum Steps {
    /// One script call per step selects and changes the messages.
    All(BulkSteps),
    /// This server selects the messages, and makes a call for each.
    Picked(PickedSteps),
}

impl Steps {
    /// The number of changed messages.
    pub(super) fn done(&self) -> u64 {
        match self {
            Self::All(steps) => steps.done(),
            Self::Picked(steps) => steps.done(),
        }
    }

    /// What a cancel has left alone.
    pub(super) fn skipped(&self) -> Option<Skipped> {
        match self {
            Self::All(_) => None,
            Self::Picked(steps) => steps.skipped(),
        }
    }

    /// How many messages the last step, of at most `limit`, may have changed without counting them, if
    /// a reply was lost.
    pub(super) fn lost(&self, limit: usize) -> usize {
        match self {
            Self::All(_) => limit,
            Self::Picked(steps) => steps.lost(),
        }
    }

    /// The first messages of the next step. If a step of at most `count` follows at once, it
    /// changes no other messages.
    pub(super) async fn peek(&mut self, count: usize) -> Result<Vec<Vec<u8>>, Error> {
        match self {
            Self::All(steps) => steps.peek(count).await,
            Self::Picked(steps) => steps.peek(count).await,
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
            Self::Picked(steps) => steps.step(limit).await,
        }
    }
}

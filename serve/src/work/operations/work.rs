//! Runs the steps of each kind of operation.

use std::sync::Arc;

use dueq::admin::AuditSteps;
use dueq::{MessageState, Queue};

use crate::wire::operations::Kind;
use crate::wire::operations::Progress;
use crate::work::operations::cancel::Cancels;
use crate::work::operations::kept::Kept;
use crate::work::operations::picked::PickedSteps;
use crate::work::operations::plan::Plan;
use crate::work::operations::progress::{Count, End, Step};
use crate::work::operations::steps::Steps;

/// The kinds of operations, with the state of their steps.
pub(super) enum Work {
    Bulk(Steps),
    Audit(AuditSteps),
    Cancel(Cancels),
    /// A dry run of a requeue or a purge.
    Count(Count),
}

impl Work {
    /// `None` for a repartition, which the library makes in one call.
    pub(super) fn new(
        queue: &Queue,
        plan: &Plan,
        kept: Option<&Arc<Kept>>,
    ) -> Result<Option<Self>, dueq::Error> {
        let Some(selection) = &plan.selection else {
            return Ok(match plan.kind {
                Kind::Audit => Some(Self::Audit(queue.audit_steps(false))),
                Kind::Repair => Some(Self::Audit(queue.audit_steps(!plan.is_dry_run))),
                Kind::Repartition => None,
                _ => Some(Self::Cancel(Cancels::new(queue, plan))),
            });
        };
        if plan.is_dry_run {
            return Ok(Some(Self::Count(Count::new(queue, selection))));
        }
        let before_ms = selection.before_ms.unwrap_or(u64::MAX);
        let by_script = selection.is_by_time();
        let steps = match plan.kind {
            Kind::Requeue if by_script => Some(queue.requeue_steps(before_ms)),
            Kind::Purge if by_script => Some(queue.purge_steps(selection.state, before_ms)?),
            _ => None,
        };
        Ok(Some(Self::Bulk(match (steps, selection.after_ms) {
            (Some(steps), Some(after_ms)) => Steps::All(steps.since(after_ms)?),
            (Some(steps), None) => Steps::All(steps),
            (None, _) => Steps::Picked(PickedSteps::new(queue, plan, selection, kept)),
        })))
    }

    /// Counts the messages before the first step; `None` if the total is not known.
    pub(super) async fn estimate(&self, queue: &Queue) -> Result<Option<u64>, dueq::Error> {
        Ok(match self {
            Self::Bulk(_) => None, // the steps report the total
            Self::Cancel(cancels) => Some(cancels.count()),
            Self::Count(count) if count.counts_dues().is_some() => None,
            Self::Count(count) => {
                let stats = queue.stats().await?;
                Some(match count.state() {
                    MessageState::Dead => stats.dead,
                    MessageState::Scheduled => stats.scheduled,
                    _ => stats.ready,
                })
            }
            // The audit looks at each message twice: in its state, and at its payload.
            Self::Audit(_) => {
                let stats = queue.stats().await?;
                Some(2 * (stats.scheduled + stats.ready + stats.leased + stats.dead))
            }
        })
    }

    /// Runs the next step, with about `limit` messages at most. May be called again after an error.
    pub(super) async fn step(
        &mut self,
        limit: usize,
        update: impl Fn(&mut dyn FnMut(&mut Progress)),
    ) -> Result<Step, dueq::Error> {
        match self {
            Self::Bulk(steps) => {
                let before = steps.done();
                let stepped = steps.step(limit).await;
                // Also after a step that failed after one of its calls.
                update(&mut |progress| {
                    progress.done = steps.done();
                    progress.skipped = steps.skipped();
                });
                let stepped = stepped?;
                update(&mut |progress| progress.of = stepped.of.or(progress.of));
                Ok(Step {
                    // A step that only reads counts as one message.
                    messages: (steps.done() - before).max(1),
                    end: stepped.end,
                })
            }
            Self::Audit(steps) => {
                let mut stepped = steps.step(limit).await?;
                update(&mut |progress| {
                    progress.done += stepped.looked;
                    progress.of = progress.of.map(|of| of.max(progress.done));
                    progress.found(std::mem::take(&mut stepped.findings));
                });
                Ok(Step {
                    messages: stepped.looked,
                    end: stepped.is_end.then_some(End::Done),
                })
            }
            Self::Cancel(cancels) => cancels.step(limit, update).await,
            Self::Count(count) => count.step(limit, update).await,
        }
    }

    /// How many messages the last step, of at most `limit`, may have changed without counting them, if
    /// a reply was lost.
    pub(super) fn lost(&self, limit: usize) -> usize {
        match self {
            Self::Bulk(steps) => steps.lost(limit),
            _ => 0,
        }
    }
}

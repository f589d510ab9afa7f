//! Runs the steps of each kind of operation.

use dueq::admin::AuditSteps;
use dueq::{MessageState, Queue};

use crate::wire::operations::Kind;
use crate::wire::operations::Progress;
use crate::work::operations::cancel::Cancels;
use crate::work::operations::group::GroupSteps;
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
    pub(super) fn new(queue: &Queue, plan: &Plan) -> Result<Option<Self>, dueq::Error> {
        let before_ms = plan.before_ms.unwrap_or(0);
        Ok(Some(match plan.kind {
            Kind::Requeue | Kind::Purge if plan.is_dry_run => Self::Count(Count::new(queue, plan)),
            Kind::Requeue if !plan.group.is_all() => {
                Self::Bulk(Steps::Group(GroupSteps::new(queue, plan)))
            }
            Kind::Requeue | Kind::Purge => {
                let steps = match plan.kind {
                    Kind::Requeue => queue.requeue_steps(before_ms),
                    _ => queue.purge_steps(plan.selected(), before_ms)?,
                };
                Self::Bulk(Steps::All(match plan.group.after_ms {
                    Some(after_ms) => steps.since(after_ms)?,
                    None => steps,
                }))
            }
            Kind::Cancel => Self::Cancel(Cancels::new(queue, plan)),
            Kind::Audit => Self::Audit(queue.audit_steps(false)),
            Kind::Repair => Self::Audit(queue.audit_steps(!plan.is_dry_run)),
            Kind::Repartition => return Ok(None),
        }))
    }

    /// Counts the messages before the first step; `None` if the total is not known.
    pub(super) async fn estimate(&self, queue: &Queue) -> Result<Option<u64>, dueq::Error> {
        Ok(match self {
            Self::Bulk(_) => None, // the steps report the total
            Self::Cancel(cancels) => Some(cancels.count()),
            Self::Count(count) if count.state() == MessageState::Scheduled => None,
            Self::Count(count) => {
                let stats = queue.stats().await?;
                Some(match count.state() {
                    MessageState::Dead => stats.dead,
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
                update(&mut |progress| progress.done = steps.done());
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

    /// Whether a lost reply may hide changes that a step made.
    pub(super) fn can_lose_count(&self) -> bool {
        matches!(self, Self::Bulk(_))
    }
}

//! The steps of each kind of operation.

use dueq::{AuditSteps, BulkEnd, BulkSteps, Queue, State};

use crate::operations::cancel::Cancels;
use crate::operations::count::Count;
use crate::operations::plan::{Kind, Plan};
use crate::operations::progress::Progress;

/// What an operation goes through, step by step.
pub(super) enum Work {
    Bulk(BulkSteps),
    Audit(AuditSteps),
    Cancel(Cancels),
    /// A dry run of a requeue or a purge.
    Count(Count),
}

/// What a step did.
pub(super) struct Step {
    /// How many messages it dealt with: the pace counts them.
    pub(super) messages: u64,
    pub(super) end: Option<End>,
}

/// Why there is no further step.
pub(super) enum End {
    Done,
    /// The queue was deleted meanwhile.
    QueueGone,
}

impl Work {
    pub(super) fn new(queue: &Queue, plan: &Plan) -> Result<Self, dueq::Error> {
        let before_ms = plan.before_ms.unwrap_or(0);
        let selected = plan.selected();
        Ok(match plan.kind {
            Kind::Requeue | Kind::Purge if plan.is_dry_run => {
                Self::Count(Count::new(queue, selected, before_ms))
            }
            Kind::Requeue => Self::Bulk(queue.requeue_steps(before_ms)),
            Kind::Purge => Self::Bulk(queue.purge_steps(selected, before_ms)?),
            Kind::Cancel => Self::Cancel(Cancels::new(queue, plan)),
            Kind::Audit => Self::Audit(queue.audit_steps(false)),
            Kind::Repair => Self::Audit(queue.audit_steps(!plan.is_dry_run)),
        })
    }

    /// Counts what there is, before the first step.
    pub(super) async fn estimate(&self, queue: &Queue) -> Result<Option<u64>, dueq::Error> {
        Ok(match self {
            Self::Bulk(_) => None, // the steps say it
            Self::Cancel(cancels) => Some(cancels.count()),
            Self::Count(count) if count.state() == State::Scheduled => None,
            Self::Count(count) => {
                let stats = queue.stats().await?;
                Some(match count.state() {
                    State::Dead => stats.dead,
                    _ => stats.ready,
                })
            }
            // Each message is looked at in its state, and with its payload.
            Self::Audit(_) => {
                let stats = queue.stats().await?;
                Some(2 * (stats.scheduled + stats.ready + stats.leased + stats.dead))
            }
        })
    }

    /// The next step, of at most about `limit` messages. It can be made again after an error.
    pub(super) async fn step(
        &mut self,
        limit: usize,
        update: impl Fn(&mut dyn FnMut(&mut Progress)),
    ) -> Result<Step, dueq::Error> {
        match self {
            Self::Bulk(steps) => {
                let before = steps.done();
                let stepped = steps.step(limit).await;
                // Also of a step that failed after its call.
                update(&mut |progress| progress.done = steps.done());
                let stepped = stepped?;
                update(&mut |progress| {
                    if let Some(left) = stepped.left {
                        progress.of = Some(stepped.done + left);
                    }
                });
                Ok(Step {
                    messages: stepped.done - before,
                    end: stepped.end.map(|end| match end {
                        BulkEnd::QueueGone => End::QueueGone,
                        _ => End::Done,
                    }),
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

    /// Whether a lost reply can have hidden what the step did.
    pub(super) fn can_lose_count(&self) -> bool {
        matches!(self, Self::Bulk(_))
    }
}

//! Cancels many messages by their ids.

use std::collections::VecDeque;

use dueq::outcomes::CancelOutcome;
use dueq::{Error, MessageState, Queue};
use tokio::task::JoinSet;

use crate::wire::operations::Progress;
use crate::work::operations::plan::Plan;
use crate::work::operations::progress::{End, Step};

/// The ids that are not cancelled yet.
pub(super) struct Cancels {
    queue: Queue,
    left: VecDeque<Vec<u8>>,
    count: u64,
    with_dead: bool,
    is_dry_run: bool,
}

impl Cancels {
    pub(super) fn new(queue: &Queue, plan: &Plan) -> Self {
        Self {
            queue: queue.clone(),
            left: plan.ids.take().into(),
            count: plan.ids.count as u64,
            with_dead: plan.with_dead,
            is_dry_run: plan.is_dry_run,
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Cancels the next ids; their calls share batches. If a call fails, the next step tries the id
    /// again: within 12 s a repeated cancel gets the answer of the first.
    pub(super) async fn step(
        &mut self,
        limit: usize,
        update: impl Fn(&mut dyn FnMut(&mut Progress)),
    ) -> Result<Step, Error> {
        let mut calls = JoinSet::new();
        let count = limit.min(self.left.len());
        for id in self.left.drain(..count) {
            let (queue, with_dead, is_dry_run) =
                (self.queue.clone(), self.with_dead, self.is_dry_run);
            calls.spawn(async move {
                let outcome = match (is_dry_run, with_dead) {
                    (true, _) => would_be(&queue, &id, with_dead).await,
                    (false, true) => queue.cancel_dead(&id).await,
                    (false, false) => queue.cancel(&id).await,
                };
                (id, outcome)
            });
        }
        let mut failed = None;
        while let Some(ended) = calls.join_next().await {
            let (id, outcome) = match ended {
                Ok(ended) => ended,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            };
            match outcome {
                Ok(outcome) => update(&mut |progress| count_in(progress, outcome)),
                Err(error) => {
                    self.left.push_back(id);
                    failed = Some(error);
                }
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(Step {
                messages: count as u64,
                end: self.left.is_empty().then_some(End::Done),
            }),
        }
    }
}

fn count_in(progress: &mut Progress, outcome: CancelOutcome) {
    let skipped = progress.skipped.get_or_insert_default();
    match outcome {
        CancelOutcome::Cancelled | CancelOutcome::Next => progress.done += 1,
        CancelOutcome::Leased => skipped.leased += 1,
        CancelOutcome::Dead => skipped.dead += 1,
        _ => skipped.absent += 1,
    }
}

/// The outcome that a cancel would have now.
async fn would_be(queue: &Queue, id: &[u8], with_dead: bool) -> Result<CancelOutcome, Error> {
    Ok(match queue.get_up_to(id, 0).await? {
        None => CancelOutcome::Absent,
        Some(stored) => match stored.state {
            MessageState::Leased if stored.next_due_ms.is_some() => CancelOutcome::Next,
            MessageState::Leased => CancelOutcome::Leased,
            MessageState::Dead if !with_dead => CancelOutcome::Dead,
            _ => CancelOutcome::Cancelled,
        },
    })
}

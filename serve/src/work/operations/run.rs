//! Runs an operation to its end, and writes the audit line about it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dueq::{Applied, Error, Queue};

use crate::edge::Edge;
use crate::edge::audit::now_ms;
use crate::edge::problem::{Code, Failure, Problem};
use crate::wire::operations::Phase;
use crate::work::operations::canary::{Release, Verdict};
use crate::work::operations::kept::MAX_BYTES;
use crate::work::operations::operation::Operation;
use crate::work::operations::pace::{Pace, Patience};
use crate::work::operations::plan::Canary;
use crate::work::operations::progress::{End, Step};
use crate::work::operations::repartition::repartition;
use crate::work::operations::steps::Steps;
use crate::work::operations::work::Work;

/// The outcome of an operation.
enum Outcome {
    Done,
    Stopped(String),
    Failed(Failure),
}

/// The error is the outcome with which an operation ends early.
type Ended<T> = Result<T, Outcome>;

/// Runs an operation. The audit line with its outcome is on the disk before readers see that it
/// ended.
pub(super) async fn run(edge: Arc<Edge>, queue: Queue, operation: Arc<Operation>) {
    // In its own task, so that a panic gives an outcome too.
    let ran = tokio::spawn(all(queue, Arc::clone(&operation)));
    let outcome = match ran.await {
        Ok(Ok(())) => Outcome::Done,
        Ok(Err(outcome)) => outcome,
        Err(error) => {
            tracing::error!(name: "dueq_serve.panicked", ?error, "an operation panicked");
            let problem = Problem::new(
                Code::Internal,
                "the operation panicked; the log has the reason",
            );
            Outcome::Failed(Failure::of(&problem.applied(Applied::Unknown)))
        }
    };
    let mut last = operation.progress();
    last.waiting = None;
    last.ended_ms = Some(now_ms());
    match outcome {
        Outcome::Done => last.state = Phase::Done,
        Outcome::Stopped(reason) => {
            last.state = Phase::Stopped;
            last.reason = Some(reason);
        }
        Outcome::Failed(failure) => {
            last.state = Phase::Failed;
            last.problem = Some(failure);
        }
    }
    if let Err(error) = edge.audit.write(&operation.end_line(&last)).await {
        tracing::error!(name: "dueq_serve.audit_failed", ?error, "the audit log misses the outcome of an operation");
    }
    operation.update(|progress| *progress = last);
}

/// Runs all steps of an operation.
async fn all(queue: Queue, operation: Arc<Operation>) -> Ended<()> {
    let plan = operation.plan();
    let failed = |error: Error| Outcome::Failed(Failure::of(&Problem::from(error)));
    let Some(mut work) = Work::new(&queue, plan, operation.kept.as_ref()).map_err(failed)? else {
        let change = repartition(&queue, &operation);
        return tokio::select! {
            biased;
            // Workers put back what is on its way at this moment.
            reason = operation.stopped() => Err(Outcome::Stopped(reason)),
            changed = change => changed.map_err(failed),
        };
    };
    let mut patience = Patience::default();
    loop {
        match work.estimate(&queue).await {
            Ok(of) => break operation.update(|progress| progress.of = of),
            Err(error) => operation.wait_for_redis(&mut patience, error, 0).await?,
        }
    }
    if let (Work::Bulk(steps), Some(canary), false) = (&mut work, plan.canary, plan.is_dry_run) {
        operation.canary(&queue, steps, canary).await?;
    }
    let mut pace = Pace::new(plan.pace, Instant::now());
    loop {
        let limit = pace.step();
        let stepped = work.step(limit, |change| {
            operation.update(|progress| change(progress))
        });
        match stepped.await {
            Ok(Step { messages, end }) => {
                operation.answered(&mut patience);
                match end {
                    Some(End::Done) => return Ok(()),
                    Some(End::QueueGone) => {
                        let reason = "the queue was deleted".to_owned();
                        return Err(Outcome::Stopped(reason));
                    }
                    Some(End::NoRoom) => return Err(Outcome::Stopped(no_room())),
                    None => {}
                }
                operation
                    .until(pace.after(messages, Instant::now()))
                    .await?;
            }
            Err(error) => {
                let lost = work.lost(limit);
                operation.wait_for_redis(&mut patience, error, lost).await?;
            }
        }
    }
}

/// Why a cancel stops before its end.
fn no_room() -> String {
    format!(
        "the files of cancelled messages have {} MiB: save the file of this one, and begin again for the rest",
        MAX_BYTES >> 20
    )
}

impl Operation {
    /// Requeues the first messages, and waits until they are settled.
    async fn canary(&self, queue: &Queue, steps: &mut Steps, canary: Canary) -> Ended<()> {
        let mut patience = Patience::default();
        let mut release = Release::new(canary.messages);
        loop {
            let before = release.lost();
            let stepped = release.step(steps).await;
            self.update(|progress| progress.done = steps.done());
            match stepped {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => {
                    let lost = release.lost() - before;
                    self.wait_for_redis(&mut patience, error, lost).await?
                }
            }
            self.until(Instant::now()).await?;
        }
        self.answered(&mut patience);
        if steps.done() == 0 && self.update(|progress| progress.unknown) == 0 {
            return Ok(()); // there are no dead messages
        }
        let before_ms = self.plan().before_ms().unwrap_or(0);
        let mut watched = release.watched(queue, before_ms, canary.wait_ms);
        loop {
            let looked = watched.look().await;
            self.update(|progress| progress.canary = Some(watched.progress()));
            match looked {
                Ok(Verdict::GoOn) => return Ok(()),
                Ok(Verdict::Stop(reason)) => return Err(Outcome::Stopped(reason)),
                Ok(Verdict::Wait(pause)) => {
                    self.answered(&mut patience);
                    self.until(Instant::now() + pause).await?;
                }
                Err(error) => self.wait_for_redis(&mut patience, error, 0).await?,
            }
        }
    }

    /// Called after a failed call. If Redis may answer later, waits, and shows in the progress that
    /// it waits.
    async fn wait_for_redis(
        &self,
        patience: &mut Patience,
        error: Error,
        lost: usize,
    ) -> Ended<()> {
        let is_unknown = error.was_applied() == Applied::Unknown;
        let is_retryable = error.is_retryable();
        let mut problem = Problem::from(error);
        let has_done = self.update(|progress| {
            if is_unknown {
                progress.unknown += lost as u64;
            }
            progress.done > 0 && !self.plan().only_reads()
        });
        if problem.applied == Applied::No && has_done {
            problem = problem.applied(Applied::Yes);
        }
        let failure = Failure::of(&problem);
        let pause = match patience.pause(Instant::now()) {
            Some(pause) if is_retryable => pause,
            _ => return Err(Outcome::Failed(failure)),
        };
        self.update(|progress| progress.waiting = Some(failure));
        self.until(Instant::now() + pause).await
    }

    /// Called after an answer of Redis: the operation no longer waits for it.
    fn answered(&self, patience: &mut Patience) {
        patience.renew();
        self.update(|progress| progress.waiting = None);
    }

    /// Waits until this instant; ends early if the operation must stop.
    async fn until(&self, at: Instant) -> Ended<()> {
        let pause = at.saturating_duration_since(Instant::now());
        tokio::select! {
            biased;
            reason = self.stopped() => Err(Outcome::Stopped(reason)),
            () = tokio::time::sleep(pause), if pause > Duration::ZERO => Ok(()),
            () = std::future::ready(()), if pause == Duration::ZERO => Ok(()),
        }
    }
}

//! How far an operation is, as it is sent.

use dueq::{Cursor, Listed, Queue, State};
use serde::Serialize;
use utoipa::ToSchema;

use crate::edge::problem::Failure;
use crate::work::operations::plan::{Group, Plan};

/// How many findings of an audit are kept.
const MAX_FINDINGS: usize = 100;

/// Whether an operation goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    /// It goes on, or waits for Redis.
    #[default]
    Running,
    /// It ended before its end: `reason` says why. The same call does the rest.
    Stopped,
    /// It did all.
    Done,
    /// It ended before its end by an error, `problem`. The same call does the rest.
    Failed,
}

/// What an operation has done so far.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct Progress {
    #[schema(inline)]
    pub(super) state: Phase,
    /// How many messages were done: requeued, purged or cancelled. Of a dry run, how many would be.
    /// Of an audit or a repair, how many entries were looked at; a message has several.
    pub(super) done: u64,
    /// How many there are in all, as far as is known. Of an audit or a repair an estimate.
    pub(super) of: Option<u64>,
    /// How many more may have been done, because a reply of Redis was lost.
    pub(super) unknown: u64,
    /// Of a cancel: messages that were left alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) skipped: Option<Skipped>,
    /// Of a requeue with a canary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) canary: Option<CanaryProgress>,
    /// Of an audit or a repair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) audit: Option<AuditFound>,
    /// While Redis does not answer: the error of the last try.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) waiting: Option<Failure>,
    /// Why it stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<Failure>,
    /// When it ended, by the clock of the server.
    pub(super) ended_ms: Option<u64>,
}

/// Messages that a cancel left alone.
#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema)]
pub(crate) struct Skipped {
    /// A handler has them.
    pub(super) leased: u64,
    /// They are dead, and `dead` is not true.
    pub(super) dead: u64,
    /// The queue has no such message, or no more.
    pub(super) absent: u64,
}

/// What became of the first messages of a requeue.
#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema)]
pub(crate) struct CanaryProgress {
    /// How many were requeued.
    pub(super) messages: u64,
    /// How many of them were settled: acked, or handled and due again later.
    pub(super) settled: u64,
    /// How many died again.
    pub(super) died: u64,
    /// How many wait for a handler, have one, or failed and wait for their next attempt.
    pub(super) waiting: u64,
}

/// What an audit found.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct AuditFound {
    /// How many things are wrong, or were.
    pub(super) found: u64,
    /// How many of them were repaired.
    pub(super) repaired: u64,
    /// The first 100 of them. Left out in lists.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) findings: Vec<Wrong>,
}

/// Something that is wrong with the queue.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Wrong {
    /// A word for this kind of finding. It does not change between releases.
    code: &'static str,
    /// The id, key or field.
    subject: String,
    problem: String,
    consequence: &'static str,
    /// The command that repairs it, or what is left to do; empty if nothing is.
    remedy: String,
    repaired: bool,
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

/// What is known after a step.
pub(super) struct Stepped {
    /// How many messages there are in all.
    pub(super) of: Option<u64>,
    pub(super) end: Option<End>,
}

impl Progress {
    pub(super) fn found(&mut self, findings: Vec<dueq::Finding>) {
        let audit = self.audit.get_or_insert_default();
        for finding in findings {
            audit.found += 1;
            audit.repaired += u64::from(finding.repaired);
            if audit.findings.len() < MAX_FINDINGS {
                audit.findings.push(Wrong {
                    code: finding.code,
                    subject: String::from_utf8_lossy(&finding.subject).into_owned(),
                    problem: finding.problem,
                    consequence: finding.consequence,
                    remedy: finding.remedy,
                    repaired: finding.repaired,
                });
            }
        }
    }

    /// The same without what may be long.
    pub(super) fn brief(mut self) -> Self {
        if let Some(audit) = &mut self.audit {
            audit.findings.clear();
        }
        self
    }
}

/// Counts the messages in one state whose time is at or before a time.
pub(super) struct Count {
    queue: Queue,
    state: State,
    before_ms: u64,
    group: Group,
    cursor: Option<Cursor>,
}

impl Count {
    pub(super) fn new(queue: &Queue, plan: &Plan) -> Self {
        Self {
            queue: queue.clone(),
            state: plan.selected(),
            before_ms: plan.before_ms.unwrap_or(0),
            group: plan.group.clone(),
            cursor: plan.group.begin(),
        }
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    pub(super) async fn step(
        &mut self,
        limit: usize,
        update: impl Fn(&mut dyn FnMut(&mut Progress)),
    ) -> Result<Step, dueq::Error> {
        if self.state == State::Scheduled {
            // Redis counts by due time itself.
            let counts = self.queue.dues(&[self.before_ms + 1]).await?.counts;
            let found = counts.first().copied().unwrap_or(0);
            update(&mut |progress| {
                progress.done = found;
                progress.of = Some(found);
            });
            return Ok(Step {
                messages: 1,
                end: Some(End::Done),
            });
        }
        let page = self.queue.list(self.state, self.cursor.as_ref(), limit);
        let page = page.await?;
        let is_early = |message: &&Listed| message.time_ms <= self.before_ms;
        let early: Vec<_> = page.messages.iter().filter(is_early).collect();
        // Dead messages are in the order of their times, ready ones are not.
        let is_past = self.state == State::Dead && early.len() < page.messages.len();
        let found = early.iter().filter(|message| self.group.has(message));
        let found = found.count() as u64;
        let is_end = page.next.is_none() || is_past;
        update(&mut |progress| {
            progress.done += found;
            if is_end {
                progress.of = Some(progress.done);
            }
        });
        self.cursor = page.next;
        Ok(Step {
            messages: page.messages.len() as u64,
            end: is_end.then_some(End::Done),
        })
    }
}

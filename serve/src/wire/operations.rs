//! Operations: what they do, and how far they are.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::edge::problem::Failure;

/// The most findings of an audit that are kept.
const MAX_FINDINGS: usize = 100;

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Makes dead messages due again.
    Requeue,
    /// Removes scheduled, ready or dead messages.
    Purge,
    /// Cancels messages: by their ids, or all that match.
    Cancel,
    /// Looks for damage of the queue.
    Audit,
    /// Looks for damage, and repairs it.
    Repair,
    /// Changes the number of partitions, or takes such a change back.
    Repartition,
}

/// A list of operations.
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct OperationList {
    /// Those that this instance runs, and the last ones that have ended. The newest first.
    pub(crate) operations: Vec<OperationReport>,
}

/// An operation on a queue.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Operation)]
pub(crate) struct OperationReport {
    pub(crate) id: String,
    pub(crate) queue: String,
    pub(crate) kind: Kind,
    /// Which messages a requeue, a purge, or a cancel without ids deals with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) messages: Option<String>,
    /// Only what died, or was due, at or before this time of Redis. The same call with this `before_ms`
    /// goes on where this one ended.
    pub(crate) before_ms: Option<u64>,
    /// Only what died at or after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) after_ms: Option<u64>,
    /// Of a requeue: only what died with this error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Of a requeue: only what died because its leases ran out too often, or only the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) crashed: Option<bool>,
    /// Only messages with this text in their error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error_text: Option<String>,
    /// Only messages with at least so many failures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) min_failures: Option<u32>,
    /// Only messages with at least so many crashes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) min_crashes: Option<u32>,
    /// It ends after so many changed messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<u64>,
    /// Of a cancel without ids: the address of the lines that push its messages again. Missing while
    /// there are none, and after newer operations needed their room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cancelled_href: Option<String>,
    pub(crate) dry_run: bool,
    /// How many messages a second. A repartition has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pace: Option<u64>,
    /// Of a repartition: how many partitions the queue gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) partitions: Option<usize>,
    /// Of a repartition: true if it takes a change back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) abort: Option<bool>,
    /// Of a repartition: whether it leaves three quarters of the time to others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gentle: Option<bool>,
    #[serde(flatten)]
    pub(crate) progress: Progress,
    /// Who asked for it.
    pub(crate) by: String,
    /// When it began, by the clock of the server.
    pub(crate) started_ms: u64,
    pub(crate) href: String,
}

/// Whether an operation goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
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
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct Progress {
    #[schema(inline)]
    pub(crate) state: Phase,
    /// How many messages were done: requeued, purged, cancelled or moved. Of a dry run, how many would be.
    /// Of an audit or a repair, how many entries were looked at; a message has several.
    pub(crate) done: u64,
    /// How many there are in all, as far as is known. Of an audit, a repair or a repartition an estimate.
    pub(crate) of: Option<u64>,
    /// How many more may have been done, because a reply of Redis was lost.
    pub(crate) unknown: u64,
    /// Of a cancel: messages that were left alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) skipped: Option<Skipped>,
    /// Of a requeue with a canary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) canary: Option<CanaryProgress>,
    /// Of an audit or a repair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) audit: Option<AuditFound>,
    /// Of a repartition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) repartition: Option<RepartitionState>,
    /// While Redis does not answer: the error of the last try.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waiting: Option<Failure>,
    /// Why it stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<Failure>,
    /// When it ended, by the clock of the server.
    pub(crate) ended_ms: Option<u64>,
}

/// Messages that a cancel left alone.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct Skipped {
    /// A handler has them.
    pub(crate) leased: u64,
    /// They are dead, and `dead` is not true.
    pub(crate) dead: u64,
    /// The queue has no such message, or no more.
    pub(crate) absent: u64,
}

/// What became of the first messages of a requeue.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct CanaryProgress {
    /// How many were requeued.
    pub(crate) messages: u64,
    /// How many of them were settled: acked, or handled and due again later.
    pub(crate) settled: u64,
    /// How many died again.
    pub(crate) died: u64,
    /// How many wait for a handler, have one, or failed and wait for their next attempt.
    pub(crate) waiting: u64,
}

/// What a repartition does.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct RepartitionState {
    /// `opening`: it tells the partitions. `moving`: it moves messages, and then waits for what is
    /// leased or due soon, and until the partitions have forgotten calls from before. `closing`: it
    /// removes partitions. `complete`.
    pub(crate) phase: String,
    /// How many messages it has moved per second.
    pub(crate) per_second: u64,
}

/// What an audit found.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct AuditFound {
    /// How many things are wrong, or were.
    pub(crate) found: u64,
    /// How many of them were repaired.
    pub(crate) repaired: u64,
    /// The first 100 of them. Left out in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) findings: Vec<Wrong>,
}

/// Something that is wrong with the queue.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct Wrong {
    /// A word for this kind of finding. It does not change between releases.
    pub(crate) code: String,
    /// The id, key or field.
    pub(crate) subject: String,
    pub(crate) problem: String,
    pub(crate) consequence: String,
    /// The command that repairs it, or what is left to do; empty if nothing is.
    pub(crate) remedy: String,
    pub(crate) repaired: bool,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Requeue => "requeue",
            Self::Purge => "purge",
            Self::Cancel => "cancel",
            Self::Audit => "audit",
            Self::Repair => "repair",
            Self::Repartition => "repartition",
        }
    }
}

impl Progress {
    pub(crate) fn found(&mut self, findings: Vec<dueq::admin::Finding>) {
        let audit = self.audit.get_or_insert_default();
        for finding in findings {
            audit.found += 1;
            audit.repaired += u64::from(finding.repaired);
            if audit.findings.len() < MAX_FINDINGS {
                audit.findings.push(Wrong {
                    code: finding.code.to_owned(),
                    subject: String::from_utf8_lossy(&finding.subject).into_owned(),
                    problem: finding.problem,
                    consequence: finding.consequence.to_owned(),
                    remedy: finding.remedy,
                    repaired: finding.repaired,
                });
            }
        }
    }

    /// Drops the fields that may be long.
    pub(crate) fn brief(mut self) -> Self {
        if let Some(audit) = &mut self.audit {
            audit.findings.clear();
        }
        self
    }
}

impl OperationReport {
    /// The report without the fields that may be long, for a list.
    pub(crate) fn brief(self) -> Self {
        Self {
            progress: self.progress.brief(),
            ..self
        }
    }
}

//! Counts the results of the pushes of one request.

use dueq::outcomes::PushOutcome;
use dueq::{Applied, OnConflict, Receipt};
use serde::Serialize;
use utoipa::ToSchema;

use crate::edge::problem::Problem;
use crate::routes::messages::key::Fingerprint;
use crate::routes::messages::push::unchanged;

/// The most refusals that are described; further ones are only counted.
const MAX_REFUSALS: usize = 100;

/// What a request did that pushes many messages.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
#[schema(as = PushCounts)]
pub(crate) struct Summary {
    /// Every line up to this one was pushed or refused. Of a list, its messages are the lines.
    lines_done: u64,
    /// Messages that were stored.
    created: u64,
    /// Messages whose id was in the queue, or remembered: nothing was changed.
    existed: u64,
    /// Messages that were rescheduled or replaced, or that follow a leased one.
    changed: u64,
    /// Lines that were not pushed: they are wrong, or `on_conflict` could not change the message.
    refused: u64,
    /// Lines that Redis did not store, or perhaps did not.
    failed: u64,
    /// The first 100 refusals.
    refusals: Vec<Refusal>,
}

/// Why a line was refused.
#[derive(Debug, Clone, Serialize, ToSchema)]
struct Refusal {
    /// The number of the line, from 1.
    line: u64,
    #[serde(flatten)]
    reason: Reason,
}

/// Why a message was refused.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct Reason {
    /// The code of the problem that the message alone would have.
    code: &'static str,
    detail: String,
}

impl Reason {
    pub(super) fn of(problem: &Problem) -> Self {
        let (code, detail) = problem.reason();
        Self {
            code,
            detail: crate::edge::shown::shown(detail),
        }
    }
}

/// A pushed line whose result is not known yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) line: u64,
    pub(super) on_conflict: OnConflict,
    /// The payload to compare, if the message's id comes from a key.
    pub(super) of_key: Option<Fingerprint>,
}

/// The counts so far, and the first failure.
#[derive(Default)]
pub(super) struct Tally {
    summary: Summary,
    failure: Option<Problem>,
    /// Whether a failed call may have stored messages.
    is_unknown: bool,
}

impl Tally {
    /// Counts a refused line.
    pub(super) fn refuse(&mut self, line: u64, problem: &Problem) -> Reason {
        let reason = Reason::of(problem);
        self.summary.refused += 1;
        if self.summary.refusals.len() < MAX_REFUSALS {
            let reason = reason.clone();
            self.summary.refusals.push(Refusal { line, reason });
        }
        reason
    }

    /// Counts the result of one push. Returns the reason if it was refused.
    pub(super) fn settle(
        &mut self,
        sent: Sent,
        result: Result<Receipt, Problem>,
    ) -> Option<Reason> {
        let receipt = match result {
            Ok(receipt) => receipt,
            Err(problem)
                if problem.code.status().is_client_error() && problem.applied == Applied::No =>
            {
                return Some(self.refuse(sent.line, &problem));
            }
            Err(problem) => {
                self.summary.failed += 1;
                if self.failure.is_none() {
                    self.summary.lines_done = sent.line.saturating_sub(1);
                }
                self.fail(problem);
                return None;
            }
        };
        match receipt.outcome() {
            PushOutcome::Created => self.summary.created += 1,
            PushOutcome::Exists(state) if sent.on_conflict != OnConflict::Keep => {
                let problem = unchanged(state, receipt.id_bytes());
                return Some(self.refuse(sent.line, &problem));
            }
            PushOutcome::Moved | PushOutcome::Next => self.summary.changed += 1,
            _ => self.summary.existed += 1,
        }
        None
    }

    /// Notes that every line up to this one has a result. No effect after a failure.
    pub(super) fn done(&mut self, line: u64) {
        if self.failure.is_none() {
            self.summary.lines_done = line;
        }
    }

    /// Keeps the first failure; after it, nothing more is sent.
    pub(super) fn fail(&mut self, problem: Problem) {
        self.is_unknown |= problem.applied == Applied::Unknown;
        self.failure.get_or_insert(problem);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// The counts; after a failure, its problem together with the counts.
    pub(super) fn finish(self) -> Result<Summary, Problem> {
        let Self {
            mut summary,
            failure,
            is_unknown,
        } = self;
        summary.refusals.sort_by_key(|refusal| refusal.line);
        let Some(problem) = failure else {
            return Ok(summary);
        };
        let applied = match summary.created + summary.existed + summary.changed {
            _ if is_unknown => Applied::Unknown,
            0 => problem.applied,
            _ => Applied::Yes,
        };
        Err(problem.applied(applied).with("pushed", &summary))
    }
}

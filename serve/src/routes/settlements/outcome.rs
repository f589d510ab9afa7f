//! The outcome of each settled or extended delivery.

use dueq::outcomes::{
    AckPushOutcome, ExtendOutcome, RetryOutcome, SettleOutcome, SnoozeOutcome, ThrottleOutcome,
};
use dueq::{Applied, Error, ErrorKind};
use serde::Serialize;
use utoipa::ToSchema;

use crate::edge::problem::Problem;
use crate::edge::shown::shown;
use crate::wire::messages::PushedMessage;

/// What became of the deliveries of a request.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct Settlements {
    /// How many were settled or extended.
    done: u64,
    /// How many leases were lost, or had ended: nothing was changed. See `gone` and `lost`.
    lost: u64,
    /// How many items were wrong: nothing was changed.
    refused: u64,
    /// How many Redis did not settle, or perhaps did not.
    failed: u64,
    /// What became of each, in the order of the request.
    results: Vec<Outcome>,
}

/// What became of one delivery.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
#[schema(as = Settlement)]
pub(super) struct Outcome {
    /// `done`: as asked. `scheduled`: the message is due again. `dead`: that was its last attempt, or
    /// it expires before the next one. `dropped`: it expires before, and was to be dropped then.
    /// `closed`: the message waits, and the queue is closed. `extended`: the lease goes on. `gone`: the
    /// message is not in the queue any more; after a repeated `ack` the first one acted. `lost`: the
    /// message is there, and this lease of it has ended. `refused`: the item is wrong. `failed`: Redis
    /// failed.
    outcome: &'static str,
    /// When the message is due again.
    #[serde(skip_serializing_if = "Option::is_none")]
    due_ms: Option<u64>,
    /// When the extended lease ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    leased_until_ms: Option<u64>,
    /// When the queue opens again.
    #[serde(skip_serializing_if = "Option::is_none")]
    closed_until_ms: Option<u64>,
    /// What became of the messages that follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pushed: Option<Vec<PushedMessage>>,
    /// The code of the problem, if it was refused or has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// Whether a failed one took effect: `no`, `yes` or `unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    applied: Option<&'static str>,
}

impl Outcome {
    fn word(outcome: &'static str) -> Self {
        Self {
            outcome,
            ..Self::default()
        }
    }

    fn scheduled(due_ms: u64) -> Self {
        Self {
            due_ms: Some(due_ms),
            ..Self::word("scheduled")
        }
    }

    fn of_problem(outcome: &'static str, problem: &Problem) -> Self {
        let (code, detail) = problem.reason();
        Self {
            code: Some(code),
            detail: Some(shown(detail)),
            ..Self::word(outcome)
        }
    }

    pub(super) fn refused(problem: &Problem) -> Self {
        Self::of_problem("refused", problem)
    }

    fn failed(problem: &Problem) -> Self {
        Self {
            applied: Some(match problem.applied {
                Applied::No => "no",
                Applied::Yes => "yes",
                Applied::Unknown => "unknown",
            }),
            ..Self::of_problem("failed", problem)
        }
    }
}

// A later release of the library may add an outcome: then a match in this file lacks it.

impl From<SettleOutcome> for Outcome {
    fn from(settled: SettleOutcome) -> Self {
        Self::word(match settled {
            SettleOutcome::Done => "done",
            SettleOutcome::Gone => "gone",
            SettleOutcome::Lost => "lost",
            _ => "unknown",
        })
    }
}

impl From<AckPushOutcome> for Outcome {
    fn from(followed: AckPushOutcome) -> Self {
        match followed {
            AckPushOutcome::Done(receipts) if receipts.is_empty() => Self::word("done"),
            AckPushOutcome::Done(receipts) => Self {
                pushed: Some(receipts.iter().map(PushedMessage::new).collect()),
                ..Self::word("done")
            },
            AckPushOutcome::Gone => Self::word("gone"),
            AckPushOutcome::Lost => Self::word("lost"),
            _ => Self::word("unknown"),
        }
    }
}

impl From<RetryOutcome> for Outcome {
    fn from(retried: RetryOutcome) -> Self {
        match retried {
            RetryOutcome::Scheduled(due_ms) => Self::scheduled(due_ms),
            RetryOutcome::Dead => Self::word("dead"),
            RetryOutcome::Dropped => Self::word("dropped"),
            RetryOutcome::Gone => Self::word("gone"),
            RetryOutcome::Lost => Self::word("lost"),
            _ => Self::word("unknown"),
        }
    }
}

impl From<SnoozeOutcome> for Outcome {
    fn from(snoozed: SnoozeOutcome) -> Self {
        match snoozed {
            SnoozeOutcome::Scheduled(due_ms) => Self::scheduled(due_ms),
            SnoozeOutcome::Dead => Self::word("dead"),
            SnoozeOutcome::Dropped => Self::word("dropped"),
            SnoozeOutcome::Gone => Self::word("gone"),
            SnoozeOutcome::Lost => Self::word("lost"),
            _ => Self::word("unknown"),
        }
    }
}

impl From<ThrottleOutcome> for Outcome {
    fn from(throttled: ThrottleOutcome) -> Self {
        match throttled {
            ThrottleOutcome::Until(until_ms) => Self {
                closed_until_ms: Some(until_ms),
                ..Self::word("closed")
            },
            ThrottleOutcome::Gone => Self::word("gone"),
            ThrottleOutcome::Lost => Self::word("lost"),
            _ => Self::word("unknown"),
        }
    }
}

impl From<ExtendOutcome> for Outcome {
    fn from(extended: ExtendOutcome) -> Self {
        match extended {
            ExtendOutcome::Until(until_ms) => Self {
                leased_until_ms: Some(until_ms),
                ..Self::word("extended")
            },
            ExtendOutcome::Gone => Self::word("gone"),
            ExtendOutcome::Lost => Self::word("lost"),
            _ => Self::word("unknown"),
        }
    }
}

/// Collects the outcomes, and keeps the first failure.
#[derive(Default)]
pub(super) struct Tally {
    settlements: Settlements,
    failure: Option<Problem>,
    is_unknown: bool,
}

/// The outcome of one item.
pub(super) enum Ended {
    Refused(Problem),
    Failed(Problem),
    Done(Outcome),
}

impl From<Result<Outcome, Error>> for Ended {
    fn from(result: Result<Outcome, Error>) -> Self {
        match result {
            Ok(outcome) => Self::Done(outcome),
            Err(error)
                if error.kind() == ErrorKind::InvalidInput
                    && error.was_applied() == Applied::No =>
            {
                Self::Refused(error.into())
            }
            Err(error) => Self::Failed(error.into()),
        }
    }
}

impl Tally {
    /// Adds the outcome of the next item.
    pub(super) fn add(&mut self, ended: Ended) {
        let settlements = &mut self.settlements;
        let outcome = match ended {
            Ended::Refused(problem) => {
                settlements.refused += 1;
                Outcome::refused(&problem)
            }
            Ended::Failed(problem) => {
                settlements.failed += 1;
                self.is_unknown |= problem.applied == Applied::Unknown;
                let outcome = Outcome::failed(&problem);
                self.failure.get_or_insert(problem);
                outcome
            }
            Ended::Done(outcome) => {
                match outcome.outcome {
                    "gone" | "lost" => settlements.lost += 1,
                    _ => settlements.done += 1,
                }
                outcome
            }
        };
        settlements.results.push(outcome);
    }

    /// The outcomes; after a failure, its problem together with the outcomes.
    pub(super) fn finish(self) -> Result<Settlements, Problem> {
        let Self {
            settlements,
            failure,
            is_unknown,
        } = self;
        let Some(problem) = failure else {
            return Ok(settlements);
        };
        let applied = match settlements.done {
            _ if is_unknown => Applied::Unknown,
            0 => problem.applied,
            _ => Applied::Yes,
        };
        Err(problem.applied(applied).with("settled", &settlements))
    }
}

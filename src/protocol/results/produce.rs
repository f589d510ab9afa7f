//! Decodes the item results of producers' verbs: push, cancel, reschedule, run_now, requeue.

use super::ItemText;
use crate::error::Error;
use crate::model::outcomes::{
    CancelOutcome, MessageState, PushOutcome, RequeueOutcome, RescheduleOutcome, RunNowOutcome,
};
use crate::protocol::verbs::Verb;

/// The result of one pushed message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PushResult {
    /// The message is stored.
    Created {
        /// The server's time of the call, in Unix microseconds.
        now_us: i64,
    },
    /// A message with this id is in the queue, in this state. Nothing changed.
    Exists(MessageState),
    /// The waiting message was rescheduled or replaced.
    Moved {
        /// The server's time of the call, in Unix microseconds.
        now_us: i64,
    },
    /// A handler has the message. The queue keeps the pushed one as its next message.
    Next {
        /// The server's time of the call, in Unix microseconds.
        now_us: i64,
    },
    /// A window remembers the id of a message that has ended.
    Remembered {
        /// The end of the window, in Unix milliseconds.
        until_ms: u64,
    },
    /// An earlier try of this call was applied and its message has ended since; or another message
    /// with this id ended close to the first try.
    Finished {
        /// When that message ended, in Unix microseconds of the server, if the server knows.
        ended_us: Option<i64>,
    },
    /// Nothing was stored: the id was pushed or cancelled again after the cancel that this push
    /// should undo.
    Used,
    /// Nothing was applied: the call arrived after the time up to which the server recognises its
    /// repetitions.
    Expired,
}

impl PushResult {
    pub(crate) fn decode(verb: Verb, text: &str, now_us: i64) -> Result<Self, Error> {
        let item = ItemText::new(verb, text);
        match item.word {
            "CREATED" => Ok(Self::Created { now_us }),
            "EXISTS" => Ok(Self::Exists(state(item)?)),
            "MOVED" => Ok(Self::Moved { now_us }),
            "NEXT" => Ok(Self::Next { now_us }),
            "REMEMBERED" => Ok(Self::Remembered {
                until_ms: item.time_ms()?,
            }),
            "FINISHED" => Ok(Self::Finished {
                ended_us: micros(item.detail),
            }),
            "USED" => Ok(Self::Used),
            "EXPIRED" => Ok(Self::Expired),
            _ => Err(item.refusal()),
        }
    }

    /// The server's time from which a delay counts, as the script rounds it up to Unix
    /// milliseconds. `None` unless this call set the due time.
    pub(crate) fn now_up_ms(self) -> Option<u64> {
        match self {
            Self::Created { now_us } | Self::Moved { now_us } | Self::Next { now_us } => {
                u64::try_from(now_us).ok().map(|us| us.div_ceil(1_000))
            }
            _ => None,
        }
    }

    /// The outcome for the caller of the push.
    pub(crate) fn outcome(self) -> Result<PushOutcome, Error> {
        match self {
            Self::Created { .. } => Ok(PushOutcome::Created),
            Self::Exists(state) => Ok(PushOutcome::Exists(state)),
            Self::Moved { .. } => Ok(PushOutcome::Moved),
            Self::Next { .. } => Ok(PushOutcome::Next),
            Self::Remembered { until_ms } => Ok(PushOutcome::Remembered(until_ms)),
            Self::Finished { .. } | Self::Used => Ok(PushOutcome::Finished),
            // A batch sends such an item again or fails it: see `BatchVerb::verdict` of push.
            Self::Expired => Err(ItemText::new(Verb::Push, "EXPIRED").unexpected()),
        }
    }
}

/// Decodes what a cancel did. Also returns the server's time of the call, as the script rounds it
/// up to Unix milliseconds.
pub(crate) fn cancelled(text: &str, now_us: i64) -> Result<(CancelOutcome, u64), Error> {
    let at_ms = u64::try_from(now_us).unwrap_or(0).div_ceil(1_000);
    cancel_outcome(text).map(|outcome| (outcome, at_ms))
}

fn cancel_outcome(text: &str) -> Result<CancelOutcome, Error> {
    let item = ItemText::new(Verb::Cancel, text);
    match item.word {
        "CANCELLED" if item.detail == "next" => Ok(CancelOutcome::Next),
        "CANCELLED" => Ok(CancelOutcome::Cancelled),
        "LEASED" => Ok(CancelOutcome::Leased),
        "DEAD" => Ok(CancelOutcome::Dead),
        "ABSENT" => Ok(CancelOutcome::Absent),
        _ => Err(item.refusal()),
    }
}

pub(crate) fn rescheduled(text: &str) -> Result<RescheduleOutcome, Error> {
    let item = ItemText::new(Verb::Reschedule, text);
    match item.word {
        "MOVED" => Ok(RescheduleOutcome::Moved(item.time_ms()?)),
        "CONFLICT" => Ok(RescheduleOutcome::Conflict(item.time_ms()?)),
        "LEASED" => Ok(RescheduleOutcome::Leased),
        "DEAD" => Ok(RescheduleOutcome::Dead),
        "ABSENT" => Ok(RescheduleOutcome::Absent),
        _ => Err(item.refusal()),
    }
}

pub(crate) fn run_now(text: &str) -> Result<RunNowOutcome, Error> {
    let item = ItemText::new(Verb::RunNow, text);
    match item.word {
        "MOVED" => Ok(RunNowOutcome::Moved),
        "ALREADY" => Ok(RunNowOutcome::Already),
        "LEASED" => Ok(RunNowOutcome::Leased),
        "DEAD" => Ok(RunNowOutcome::Dead),
        "ABSENT" => Ok(RunNowOutcome::Absent),
        _ => Err(item.refusal()),
    }
}

pub(crate) fn requeued(text: &str) -> Result<RequeueOutcome, Error> {
    let item = ItemText::new(Verb::Requeue, text);
    match item.word {
        "REQUEUED" => Ok(RequeueOutcome::Requeued),
        "NOT_DEAD" => Ok(RequeueOutcome::NotDead(state(item)?)),
        "ABSENT" => Ok(RequeueOutcome::Absent),
        _ => Err(item.refusal()),
    }
}

fn state(item: ItemText<'_>) -> Result<MessageState, Error> {
    MessageState::parse(item.detail).ok_or_else(|| item.refusal())
}

/// Decodes a time of the form `MILLISECONDS.FRACTION` into microseconds.
fn micros(text: &str) -> Option<i64> {
    let (ms, fraction) = text.split_once('.')?;
    ms.parse::<i64>()
        .ok()?
        .checked_mul(1_000)?
        .checked_add(fraction.parse().ok()?)
}

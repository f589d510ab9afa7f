//! The verbs that take many items, as a batcher needs to know them.

use crate::batch::{BatchVerb, Prefix, Tries, Verdict};
use crate::error::{Applied, Error, ErrorKind};
use crate::model::outcomes::{
    Cancelled, Extended, Requeued, Rescheduled, Retried, RunNow, Settled, Snoozed, Throttled,
};
use crate::protocol::results::produce::{self, PushResult};
use crate::protocol::results::settle;
use crate::protocol::verbs::Verb;
use crate::server::patience::PATIENCE;
use crate::telemetry::metrics::Count;

/// How many settlements justify a second call in flight. More than for other verbs: handlers do not
/// wait for them.
const ENOUGH_SETTLEMENTS: usize = 128;

/// Stores new messages.
pub(crate) struct Push;
/// Stores new messages, and moves or replaces waiting ones.
pub(crate) struct Upsert;

macro_rules! pushes {
    ($verb:ident, $shares_result:literal) => {
        impl BatchVerb for $verb {
            const VERB: Verb = Verb::$verb;
            const PREFIX: Prefix = Prefix::Attempt;
            const SHARES_RESULT: bool = $shares_result;
            type Output = PushResult;

            fn decode(text: &str, now_us: i64) -> Result<PushResult, Error> {
                PushResult::decode(Self::VERB, text, now_us)
            }

            fn is_change(result: &PushResult) -> bool {
                is_stored(result)
            }

            fn verdict(result: &PushResult, tries: &Tries) -> Verdict {
                push_verdict(Self::VERB, result, tries)
            }

            fn count(result: &Result<PushResult, Error>) -> Option<Count> {
                push_count(result)
            }
        }
    };
}

pushes!(Push, true);
pushes!(Upsert, false);

fn is_stored(result: &PushResult) -> bool {
    matches!(
        result,
        PushResult::Created { .. }
            | PushResult::Exists(_)
            | PushResult::Moved { .. }
            | PushResult::Next { .. }
    )
}

fn push_verdict(verb: Verb, result: &PushResult, tries: &Tries) -> Verdict {
    let unknown =
        |message: String| Verdict::Fail(Error::new(ErrorKind::Timeout, Applied::Unknown, message));
    match *result {
        PushResult::Finished { .. } | PushResult::Expired if !tries.repeated => Verdict::SendAgain,
        // Another message with this id may have ended before this call began; then this one is not
        // stored.
        PushResult::Finished { ended_us: Some(us) } if us <= tries.latest_start_us => unknown(
            "the first reply was lost, and another message of this id ended as the call began"
                .to_owned(),
        ),
        PushResult::Expired => unknown(format!(
            "{} was repeated for {PATIENCE:?} and its first reply was lost",
            verb.name()
        )),
        // `Remembered` of a repetition is also final: the script replies with `Finished` if it
        // knows that an earlier try of this call stored the message that ended.
        _ => Verdict::Final,
    }
}

pub(super) fn push_count(result: &Result<PushResult, Error>) -> Option<Count> {
    Some(match result {
        Ok(PushResult::Created { .. }) => Count::PushCreated,
        Ok(PushResult::Exists(_)) => Count::PushExisting,
        Ok(PushResult::Moved { .. }) => Count::PushMoved,
        Ok(PushResult::Next { .. }) => Count::PushNext,
        Ok(PushResult::Remembered { .. }) => Count::PushRemembered,
        Ok(PushResult::Finished { .. } | PushResult::Used) => Count::PushFinished,
        Ok(PushResult::Expired) => return None,
        Err(error) if error.was_applied() != Applied::No => Count::PushUnknown,
        Err(error) if is_refusal(error) => Count::PushRefused,
        Err(_) => Count::PushFailed,
    })
}

/// Whether the script refused the item for what it asks.
fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Full)
}

/// Cancels messages that wait.
pub(crate) struct Cancel;
/// Cancels messages that wait or are dead.
pub(crate) struct CancelDead;

macro_rules! cancels {
    ($verb:ident, $with_dead:literal) => {
        impl BatchVerb for $verb {
            const VERB: Verb = Verb::Cancel;
            const PREFIX: Prefix = Prefix::Since($with_dead);
            type Output = (Cancelled, u64);

            fn decode(text: &str, now_us: i64) -> Result<Self::Output, Error> {
                produce::cancelled(text, now_us)
            }

            fn is_change((outcome, _): &Self::Output) -> bool {
                matches!(outcome, Cancelled::Cancelled | Cancelled::Next)
            }

            fn count(result: &Result<Self::Output, Error>) -> Option<Count> {
                matches!(result, Ok((Cancelled::Cancelled, _))).then_some(Count::Cancelled)
            }
        }
    };
}

cancels!(Cancel, "");
cancels!(CancelDead, "1");

pub(crate) struct Reschedule;

impl BatchVerb for Reschedule {
    const VERB: Verb = Verb::Reschedule;
    type Output = Rescheduled;

    fn decode(text: &str, _: i64) -> Result<Rescheduled, Error> {
        produce::rescheduled(text)
    }

    fn is_change(result: &Rescheduled) -> bool {
        matches!(result, Rescheduled::Moved(_))
    }

    fn count(result: &Result<Rescheduled, Error>) -> Option<Count> {
        matches!(result, Ok(Rescheduled::Moved(_))).then_some(Count::Rescheduled)
    }
}

pub(crate) struct MakeDue;

impl BatchVerb for MakeDue {
    const VERB: Verb = Verb::RunNow;
    type Output = RunNow;

    fn decode(text: &str, _: i64) -> Result<RunNow, Error> {
        produce::run_now(text)
    }

    fn is_change(result: &RunNow) -> bool {
        matches!(result, RunNow::Moved | RunNow::Already)
    }

    fn count(_: &Result<RunNow, Error>) -> Option<Count> {
        None
    }
}

pub(crate) struct Requeue;

impl BatchVerb for Requeue {
    const VERB: Verb = Verb::Requeue;
    const PREFIX: Prefix = Prefix::Word("ids");
    type Output = Requeued;

    fn decode(text: &str, _: i64) -> Result<Requeued, Error> {
        produce::requeued(text)
    }

    fn is_change(result: &Requeued) -> bool {
        matches!(result, Requeued::Requeued | Requeued::NotDead(_))
    }

    fn count(_: &Result<Requeued, Error>) -> Option<Count> {
        None
    }
}

pub(crate) struct EndLease;

impl BatchVerb for EndLease {
    const VERB: Verb = Verb::Reap;
    const PREFIX: Prefix = Prefix::Word("ids");
    type Output = Retried;

    fn decode(text: &str, _: i64) -> Result<Retried, Error> {
        settle::retried(Self::VERB, text)
    }

    fn is_change(result: &Retried) -> bool {
        matches!(result, Retried::Scheduled(_) | Retried::Dead)
    }

    fn count(_: &Result<Retried, Error>) -> Option<Count> {
        None
    }
}

pub(crate) struct Ack;
pub(crate) struct Again;
pub(crate) struct Release;
pub(crate) struct Bury;

macro_rules! settles {
    ($verb:ident, $done:expr, $by_claim:literal) => {
        impl BatchVerb for $verb {
            const VERB: Verb = Verb::$verb;
            const ENOUGH: usize = ENOUGH_SETTLEMENTS;
            const YIELDS: bool = true;
            const GROUPED_BY_CLAIM: bool = $by_claim;
            const SHARES_RESULT: bool = $by_claim;
            type Output = Settled;

            fn decode(text: &str, _: i64) -> Result<Settled, Error> {
                settle::settled(Self::VERB, text)
            }

            fn count(result: &Result<Settled, Error>) -> Option<Count> {
                match result {
                    Ok(Settled::Done) => Some($done),
                    Ok(Settled::Gone | Settled::Lost) => Some(Count::SettledLate),
                    Err(error) => failed_settlement(error),
                }
            }
        }
    };
}

settles!(Ack, Count::Acked, true);
settles!(Again, Count::Repeated, false);
settles!(Release, Count::Released, false);
settles!(Bury, Count::Buried, false);

pub(crate) struct Retry;

impl BatchVerb for Retry {
    const VERB: Verb = Verb::Retry;
    const ENOUGH: usize = ENOUGH_SETTLEMENTS;
    const YIELDS: bool = true;
    type Output = Retried;

    fn decode(text: &str, _: i64) -> Result<Retried, Error> {
        settle::retried(Self::VERB, text)
    }

    fn count(result: &Result<Retried, Error>) -> Option<Count> {
        match result {
            Ok(Retried::Scheduled(_)) => Some(Count::Retried),
            Ok(Retried::Dead) => Some(Count::Died),
            Ok(Retried::Dropped) => Some(Count::Dropped),
            Ok(Retried::Gone | Retried::Lost) => Some(Count::SettledLate),
            Err(error) => failed_settlement(error),
        }
    }
}

pub(crate) struct Snooze;

impl BatchVerb for Snooze {
    const VERB: Verb = Verb::Snooze;
    const ENOUGH: usize = ENOUGH_SETTLEMENTS;
    const YIELDS: bool = true;
    type Output = Snoozed;

    fn decode(text: &str, _: i64) -> Result<Snoozed, Error> {
        settle::snoozed(text)
    }

    fn count(result: &Result<Snoozed, Error>) -> Option<Count> {
        match result {
            Ok(Snoozed::Scheduled(_)) => Some(Count::Snoozed),
            Ok(Snoozed::Dead) => Some(Count::Died),
            Ok(Snoozed::Dropped) => Some(Count::Dropped),
            Ok(Snoozed::Gone | Snoozed::Lost) => Some(Count::SettledLate),
            Err(error) => failed_settlement(error),
        }
    }
}

pub(crate) struct Throttle;

impl BatchVerb for Throttle {
    const VERB: Verb = Verb::Throttle;
    const ENOUGH: usize = ENOUGH_SETTLEMENTS;
    const YIELDS: bool = true;
    type Output = Throttled;

    fn decode(text: &str, _: i64) -> Result<Throttled, Error> {
        settle::throttled(text)
    }

    fn count(result: &Result<Throttled, Error>) -> Option<Count> {
        match result {
            Ok(Throttled::Until(_)) => Some(Count::Throttled),
            Ok(Throttled::Gone | Throttled::Lost) => Some(Count::SettledLate),
            Err(error) => failed_settlement(error),
        }
    }
}

/// A settlement that the script refused, such as one with a delay of 101 years, is asked for again
/// as another one and not counted.
pub(super) fn failed_settlement(error: &Error) -> Option<Count> {
    let refused = is_refusal(error) && error.was_applied() == Applied::No;
    (!refused).then_some(Count::SettleFailed)
}

pub(crate) struct Extend;

impl BatchVerb for Extend {
    const VERB: Verb = Verb::Extend;
    type Output = Extended;

    fn decode(text: &str, _: i64) -> Result<Extended, Error> {
        settle::extended(text)
    }

    fn count(result: &Result<Extended, Error>) -> Option<Count> {
        matches!(result, Ok(Extended::Until(_))).then_some(Count::LeaseExtended)
    }
}

//! The verbs that take many items, described for the batcher.

use crate::batch::{BatchVerb, Prefix, Tries, Verdict};
use crate::error::{Applied, Error, ErrorKind};
use crate::model::outcomes::{
    BuryOutcome, CancelOutcome, ExtendOutcome, RequeueOutcome, RescheduleOutcome, RetryOutcome,
    RunNowOutcome, SettleOutcome, SnoozeOutcome, ThrottleOutcome,
};
use crate::protocol::results::produce::{self, PushResult};
use crate::protocol::results::settle;
use crate::protocol::verbs::Verb;
use crate::server::patience::PATIENCE;
use crate::telemetry::metrics::Counter;

/// How many waiting settlements justify a second call in flight. More than for other verbs, because
/// handlers do not wait for settlements.
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

            fn count(result: &Result<PushResult, Error>) -> Option<Counter> {
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
        // Another message with this id may have ended before this call began; in that case this
        // message is not stored.
        PushResult::Finished { ended_us: Some(us) } if us <= tries.latest_start_us => unknown(
            "the first reply was lost, and another message of this id ended as the call began"
                .to_owned(),
        ),
        PushResult::Expired => unknown(format!(
            "{} was repeated for {PATIENCE:?} and its first reply was lost",
            verb.name()
        )),
        // `Remembered` is final even for a repetition: the script replies `Finished` instead if it
        // knows that an earlier try of this call stored the message that ended.
        _ => Verdict::Final,
    }
}

pub(crate) fn push_count(result: &Result<PushResult, Error>) -> Option<Counter> {
    Some(match result {
        Ok(PushResult::Created { .. }) => Counter::PushCreated,
        Ok(PushResult::Exists(_)) => Counter::PushExisting,
        Ok(PushResult::Moved { .. }) => Counter::PushMoved,
        Ok(PushResult::Next { .. }) => Counter::PushNext,
        Ok(PushResult::Remembered { .. }) => Counter::PushRemembered,
        Ok(PushResult::Finished { .. } | PushResult::Used) => Counter::PushFinished,
        Ok(PushResult::Expired) => return None,
        Err(error) if error.was_applied() != Applied::No => Counter::PushUnknown,
        Err(error) if is_refusal(error) => Counter::PushRefused,
        Err(_) => Counter::PushFailed,
    })
}

/// Whether the script refused the item because of its arguments.
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
            type Output = (CancelOutcome, u64);

            fn decode(text: &str, now_us: i64) -> Result<Self::Output, Error> {
                produce::cancelled(text, now_us)
            }

            fn is_change((outcome, _): &Self::Output) -> bool {
                matches!(outcome, CancelOutcome::Cancelled | CancelOutcome::Next)
            }

            fn count(result: &Result<Self::Output, Error>) -> Option<Counter> {
                matches!(result, Ok((CancelOutcome::Cancelled, _))).then_some(Counter::Cancelled)
            }
        }
    };
}

cancels!(Cancel, "");
cancels!(CancelDead, "1");

pub(crate) struct Reschedule;

impl BatchVerb for Reschedule {
    const VERB: Verb = Verb::Reschedule;
    type Output = RescheduleOutcome;

    fn decode(text: &str, _: i64) -> Result<RescheduleOutcome, Error> {
        produce::rescheduled(text)
    }

    fn is_change(result: &RescheduleOutcome) -> bool {
        matches!(result, RescheduleOutcome::Moved(_))
    }

    fn count(result: &Result<RescheduleOutcome, Error>) -> Option<Counter> {
        matches!(result, Ok(RescheduleOutcome::Moved(_))).then_some(Counter::Rescheduled)
    }
}

pub(crate) struct MakeDue;

impl BatchVerb for MakeDue {
    const VERB: Verb = Verb::RunNow;
    type Output = RunNowOutcome;

    fn decode(text: &str, _: i64) -> Result<RunNowOutcome, Error> {
        produce::run_now(text)
    }

    fn is_change(result: &RunNowOutcome) -> bool {
        matches!(result, RunNowOutcome::Moved | RunNowOutcome::Already)
    }

    fn count(_: &Result<RunNowOutcome, Error>) -> Option<Counter> {
        None
    }
}

pub(crate) struct Requeue;

impl BatchVerb for Requeue {
    const VERB: Verb = Verb::Requeue;
    const PREFIX: Prefix = Prefix::Word("ids");
    type Output = RequeueOutcome;

    fn decode(text: &str, _: i64) -> Result<RequeueOutcome, Error> {
        produce::requeued(text)
    }

    fn is_change(result: &RequeueOutcome) -> bool {
        matches!(
            result,
            RequeueOutcome::Requeued | RequeueOutcome::NotDead(_)
        )
    }

    fn count(_: &Result<RequeueOutcome, Error>) -> Option<Counter> {
        None
    }
}

pub(crate) struct EndLease;

impl BatchVerb for EndLease {
    const VERB: Verb = Verb::Reap;
    const PREFIX: Prefix = Prefix::Word("ids");
    type Output = RetryOutcome;

    fn decode(text: &str, _: i64) -> Result<RetryOutcome, Error> {
        settle::retried(Self::VERB, text)
    }

    fn is_change(result: &RetryOutcome) -> bool {
        matches!(result, RetryOutcome::Scheduled(_) | RetryOutcome::Dead)
    }

    fn count(_: &Result<RetryOutcome, Error>) -> Option<Counter> {
        None
    }
}

/// Buries whatever has the id, for an operator.
pub(crate) struct BuryAny;

impl BatchVerb for BuryAny {
    const VERB: Verb = Verb::Bury;
    type Output = BuryOutcome;

    fn decode(text: &str, _: i64) -> Result<BuryOutcome, Error> {
        settle::buried(text)
    }

    fn is_change(result: &BuryOutcome) -> bool {
        matches!(result, BuryOutcome::Buried | BuryOutcome::Marked)
    }

    fn count(_: &Result<BuryOutcome, Error>) -> Option<Counter> {
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
            type Output = SettleOutcome;

            fn decode(text: &str, _: i64) -> Result<SettleOutcome, Error> {
                settle::settled(Self::VERB, text)
            }

            fn count(result: &Result<SettleOutcome, Error>) -> Option<Counter> {
                match result {
                    Ok(SettleOutcome::Done) => Some($done),
                    Ok(SettleOutcome::Gone | SettleOutcome::Lost) => Some(Counter::SettledLate),
                    Err(error) => failed_settlement(error),
                }
            }
        }
    };
}

settles!(Ack, Counter::Acked, true);
settles!(Again, Counter::Repeated, false);
settles!(Release, Counter::Released, false);
settles!(Bury, Counter::Buried, false);

pub(crate) struct Retry;

impl BatchVerb for Retry {
    const VERB: Verb = Verb::Retry;
    const ENOUGH: usize = ENOUGH_SETTLEMENTS;
    const YIELDS: bool = true;
    type Output = RetryOutcome;

    fn decode(text: &str, _: i64) -> Result<RetryOutcome, Error> {
        settle::retried(Self::VERB, text)
    }

    fn count(result: &Result<RetryOutcome, Error>) -> Option<Counter> {
        match result {
            Ok(RetryOutcome::Scheduled(_)) => Some(Counter::Retried),
            Ok(RetryOutcome::Dead) => Some(Counter::Died),
            Ok(RetryOutcome::Dropped) => Some(Counter::Dropped),
            Ok(RetryOutcome::Gone | RetryOutcome::Lost) => Some(Counter::SettledLate),
            Err(error) => failed_settlement(error),
        }
    }
}

pub(crate) struct Snooze;

impl BatchVerb for Snooze {
    const VERB: Verb = Verb::Snooze;
    const ENOUGH: usize = ENOUGH_SETTLEMENTS;
    const YIELDS: bool = true;
    type Output = SnoozeOutcome;

    fn decode(text: &str, _: i64) -> Result<SnoozeOutcome, Error> {
        settle::snoozed(text)
    }

    fn count(result: &Result<SnoozeOutcome, Error>) -> Option<Counter> {
        match result {
            Ok(SnoozeOutcome::Scheduled(_)) => Some(Counter::Snoozed),
            Ok(SnoozeOutcome::Dead) => Some(Counter::Died),
            Ok(SnoozeOutcome::Dropped) => Some(Counter::Dropped),
            Ok(SnoozeOutcome::Gone | SnoozeOutcome::Lost) => Some(Counter::SettledLate),
            Err(error) => failed_settlement(error),
        }
    }
}

pub(crate) struct Throttle;

impl BatchVerb for Throttle {
    const VERB: Verb = Verb::Throttle;
    const ENOUGH: usize = ENOUGH_SETTLEMENTS;
    const YIELDS: bool = true;
    type Output = ThrottleOutcome;

    fn decode(text: &str, _: i64) -> Result<ThrottleOutcome, Error> {
        settle::throttled(text)
    }

    fn count(result: &Result<ThrottleOutcome, Error>) -> Option<Counter> {
        match result {
            Ok(ThrottleOutcome::Until(_)) => Some(Counter::Throttled),
            Ok(ThrottleOutcome::Gone | ThrottleOutcome::Lost) => Some(Counter::SettledLate),
            Err(error) => failed_settlement(error),
        }
    }
}

/// The counter of a failed settlement. One that the script refused, such as a delay of 101 years,
/// is not counted: the worker makes another settlement instead.
pub(super) fn failed_settlement(error: &Error) -> Option<Counter> {
    let refused = is_refusal(error) && error.was_applied() == Applied::No;
    (!refused).then_some(Counter::SettleFailed)
}

pub(crate) struct Extend;

impl BatchVerb for Extend {
    const VERB: Verb = Verb::Extend;
    type Output = ExtendOutcome;

    fn decode(text: &str, _: i64) -> Result<ExtendOutcome, Error> {
        settle::extended(text)
    }

    fn count(result: &Result<ExtendOutcome, Error>) -> Option<Counter> {
        matches!(result, Ok(ExtendOutcome::Until(_))).then_some(Counter::LeaseExtended)
    }
}

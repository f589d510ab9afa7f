//! Decodes the item results of consumers' verbs: ack, again, retry, release, bury, snooze,
//! throttle, extend; and the reply to ack_push.

use super::ItemText;
use super::produce::PushResult;
use crate::error::Error;
use crate::model::outcomes::{
    BuryOutcome, ExtendOutcome, RetryOutcome, SettleOutcome, SnoozeOutcome, ThrottleOutcome,
};
use crate::protocol::replies::Body;
use crate::protocol::verbs::Verb;

/// Decodes the result of an ack, again, release or bury.
pub(crate) fn settled(verb: Verb, text: &str) -> Result<SettleOutcome, Error> {
    let item = ItemText::new(verb, text);
    match item.word {
        "OK" => Ok(SettleOutcome::Done),
        "GONE" => Ok(SettleOutcome::Gone),
        "LOST" => Ok(SettleOutcome::Lost),
        _ => Err(item.refusal()),
    }
}

/// Decodes the result of a retry, or of ending a lease as an operator.
pub(crate) fn retried(verb: Verb, text: &str) -> Result<RetryOutcome, Error> {
    let item = ItemText::new(verb, text);
    match item.word {
        "SCHEDULED" => Ok(RetryOutcome::Scheduled(item.time_ms()?)),
        "DEAD" => Ok(RetryOutcome::Dead),
        "DROPPED" => Ok(RetryOutcome::Dropped),
        "GONE" => Ok(RetryOutcome::Gone),
        "LOST" => Ok(RetryOutcome::Lost),
        _ => Err(item.refusal()),
    }
}

/// Decodes the result of a burial by an operator.
pub(crate) fn buried(text: &str) -> Result<BuryOutcome, Error> {
    let item = ItemText::new(Verb::Bury, text);
    match item.word {
        "OK" => Ok(BuryOutcome::Buried),
        "MARKED" => Ok(BuryOutcome::Marked),
        "DEAD" => Ok(BuryOutcome::Dead),
        "GONE" => Ok(BuryOutcome::Absent),
        _ => Err(item.refusal()),
    }
}

pub(crate) fn snoozed(text: &str) -> Result<SnoozeOutcome, Error> {
    let item = ItemText::new(Verb::Snooze, text);
    match item.word {
        "SCHEDULED" => Ok(SnoozeOutcome::Scheduled(item.time_ms()?)),
        "DEAD" => Ok(SnoozeOutcome::Dead),
        "DROPPED" => Ok(SnoozeOutcome::Dropped),
        "GONE" => Ok(SnoozeOutcome::Gone),
        "LOST" => Ok(SnoozeOutcome::Lost),
        _ => Err(item.refusal()),
    }
}

pub(crate) fn throttled(text: &str) -> Result<ThrottleOutcome, Error> {
    let item = ItemText::new(Verb::Throttle, text);
    match item.word {
        "OK" => Ok(ThrottleOutcome::Until(item.time_ms()?)),
        "GONE" => Ok(ThrottleOutcome::Gone),
        "LOST" => Ok(ThrottleOutcome::Lost),
        _ => Err(item.refusal()),
    }
}

pub(crate) fn extended(text: &str) -> Result<ExtendOutcome, Error> {
    let item = ItemText::new(Verb::Extend, text);
    match item.word {
        "OK" => Ok(ExtendOutcome::Until(item.time_ms()?)),
        "GONE" => Ok(ExtendOutcome::Gone),
        "LOST" => Ok(ExtendOutcome::Lost),
        _ => Err(item.refusal()),
    }
}

/// What an ack with follow-ups did.
#[derive(Debug, Clone)]
pub(crate) enum AckPushed {
    /// The delivery is acked. These are the results of the follow-ups, in their order.
    Done(Vec<PushResult>),
    Gone,
    Lost,
    /// Nothing was written: this is the index of the first refused follow-up, and the reason.
    Refused(usize, Error),
}

pub(crate) fn ack_pushed(body: &mut Body, now_us: i64) -> Result<AckPushed, Error> {
    let word = body.text()?;
    let texts = body.texts()?;
    let results = texts
        .iter()
        .map(|text| PushResult::decode(Verb::AckPush, text, now_us));
    match word.as_str() {
        "OK" => Ok(AckPushed::Done(results.collect::<Result<_, _>>()?)),
        "GONE" => Ok(AckPushed::Gone),
        "LOST" => Ok(AckPushed::Lost),
        "REFUSED" => results
            .enumerate()
            .find_map(|(index, result)| Some(AckPushed::Refused(index, result.err()?)))
            .ok_or_else(|| body.unexpected("it names no message that was refused")),
        _ => Err(body.unexpected(&format!("{word:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_retry_snooze_and_throttle_become_outcomes() {
        assert_eq!(
            retried(Verb::Retry, "DROPPED").ok(),
            Some(RetryOutcome::Dropped)
        );
        for (text, outcome) in [
            ("SCHEDULED 5", SnoozeOutcome::Scheduled(5)),
            ("DEAD", SnoozeOutcome::Dead),
            ("DROPPED", SnoozeOutcome::Dropped),
            ("GONE", SnoozeOutcome::Gone),
            ("LOST", SnoozeOutcome::Lost),
        ] {
            assert_eq!(snoozed(text).ok(), Some(outcome), "{text}");
        }
        assert_eq!(throttled("OK 7").ok(), Some(ThrottleOutcome::Until(7)));
        for text in ["", "OK", "OK x", "SCHEDULED", "INVALID wait"] {
            assert!(
                snoozed(text).is_err() && throttled(text).is_err(),
                "{text:?}"
            );
        }
    }
}

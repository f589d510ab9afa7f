//! The item results of consumers' verbs: ack, again, retry, release, bury, extend.

use super::ItemText;
use crate::error::Error;
use crate::model::outcomes::{Extended, Retried, Settled};
use crate::protocol::verbs::Verb;

/// Of an ack, again, release or bury.
pub(crate) fn settled(verb: Verb, text: &str) -> Result<Settled, Error> {
    let item = ItemText::new(verb, text);
    match item.word {
        "OK" => Ok(Settled::Done),
        "GONE" => Ok(Settled::Gone),
        "LOST" => Ok(Settled::Lost),
        _ => Err(item.refusal()),
    }
}

pub(crate) fn retried(text: &str) -> Result<Retried, Error> {
    let item = ItemText::new(Verb::Retry, text);
    match item.word {
        "SCHEDULED" => Ok(Retried::Scheduled(item.time_ms()?)),
        "DEAD" => Ok(Retried::Dead),
        "GONE" => Ok(Retried::Gone),
        "LOST" => Ok(Retried::Lost),
        _ => Err(item.refusal()),
    }
}

pub(crate) fn extended(text: &str) -> Result<Extended, Error> {
    let item = ItemText::new(Verb::Extend, text);
    match item.word {
        "OK" => Ok(Extended::Until(item.time_ms()?)),
        "GONE" => Ok(Extended::Gone),
        "LOST" => Ok(Extended::Lost),
        _ => Err(item.refusal()),
    }
}

//! The flags for the last moment at which an attempt may start.

use std::time::{Duration, SystemTime};

use clap::{Args, ValueEnum};
use dueq::{Message, OnExpire};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Deserialize;

use crate::output::Usage;
use crate::time;

#[derive(Args, Default)]
pub(crate) struct Expiry {
    /// Start no attempt later than this after the due time: 2h
    #[arg(long, value_name = "TIME", value_parser = time::period, allow_hyphen_values = true)]
    pub(crate) expires: Option<Duration>,
    /// Start no attempt after this moment, written as for --at
    #[arg(long, value_name = "MOMENT", conflicts_with = "expires")]
    pub(crate) expires_at: Option<String>,
    /// What becomes of the message when it expires [default: dead]
    #[arg(long, value_enum)]
    pub(crate) on_expire: Option<Fate>,
}

/// What becomes of a message that expires.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Fate {
    /// Remove it; only the count expired of `dueq stats` shows it
    Drop,
    /// Keep it as a dead letter, which can be listed and requeued
    Dead,
}

/// The last moment at which an attempt may start.
#[derive(Clone, Copy)]
pub(crate) enum Last {
    /// So long after the due time.
    After(Duration),
    /// At this Unix millisecond.
    AtMs(u64),
}

impl Expiry {
    /// The expiry that the flags give. Times without a zone are those of `zone`.
    pub(crate) fn last(&self, zone: Option<&TimeZone>) -> Result<Option<Last>, Usage> {
        if let Some(time) = self.expires {
            return Ok(Some(Last::After(time)));
        }
        let at = self.expires_at.as_deref().map(|text| at(text, zone));
        at.transpose().map_err(Usage)
    }

    /// Refuses --on-expire for a message that does not expire.
    pub(crate) fn refuse_idle_fate(&self) -> Result<(), Usage> {
        if self.on_expire.is_none() || self.expires.is_some() || self.expires_at.is_some() {
            return Ok(());
        }
        Err(Usage(
            "--on-expire has no effect without --expires or --expires-at: add one, such as --expires 2h, or leave out \
             --on-expire"
                .to_owned(),
        ))
    }
}

/// Reads the moment of --expires-at. A fraction of a millisecond is cut off, so that no attempt
/// starts after it.
pub(crate) fn at(text: &str, zone: Option<&TimeZone>) -> Result<Last, String> {
    let moment = time::moment(text, zone, Timestamp::now())?;
    let since = moment
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Ok(Last::AtMs(
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
    ))
}

/// Adds the expiry to a message; without one, `fate` has no effect.
pub(crate) fn expiring(message: Message, last: Option<Last>, fate: Option<Fate>) -> Message {
    let message = match last {
        None => return message,
        Some(Last::After(time)) => message.expires_after(time),
        Some(Last::AtMs(ms)) => message.expires_at(ms),
    };
    match fate {
        Some(Fate::Drop) => message.on_expire(OnExpire::Drop),
        Some(Fate::Dead) | None => message,
    }
}

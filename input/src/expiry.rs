//! The expiry of a message; and the options about other pushes of its id.

use std::time::{Duration, SystemTime};

use dueq::{Message, OnExpire};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::{Error, Wording, time};

/// When a message expires, unparsed.
#[derive(Debug, Clone, Default)]
pub struct Expiry {
    /// The message expires this long after its due time.
    pub expires: Option<Duration>,
    /// The message expires at this moment. Without effect beside `expires`.
    pub expires_at: Option<String>,
    /// What happens to the message when it expires.
    pub on_expire: Option<OnExpire>,
}

/// The last moment at which an attempt may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Last {
    /// The moment is this long after the due time.
    After(Duration),
    /// The moment is this Unix millisecond.
    AtMs(u64),
}

impl Expiry {
    /// The last moment at which an attempt may start, if there is one. A time without a zone counts
    /// in `zone`.
    ///
    /// A fraction of a millisecond is cut off, so that no attempt starts after the moment.
    ///
    /// # Errors
    /// If `expires_at` is not a valid moment.
    pub fn last(
        &self,
        zone: Option<&TimeZone>,
        now: Timestamp,
        wording: Wording,
    ) -> Result<Option<Last>, Error> {
        if let Some(time) = self.expires {
            return Ok(Some(Last::After(time)));
        }
        let Some(at) = &self.expires_at else {
            return Ok(None);
        };
        let moment =
            time::moment(at, zone, now, wording).map_err(|error| error.of("expires_at"))?;
        let since = moment
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        Ok(Some(Last::AtMs(ms)))
    }

    /// Refuses `on_expire` for a message that never expires.
    ///
    /// # Errors
    /// If `on_expire` is given without an expiry.
    pub fn refuse_idle_fate(&self, wording: Wording) -> Result<(), Error> {
        if self.on_expire.is_none() || self.expires.is_some() || self.expires_at.is_some() {
            return Ok(());
        }
        let name = |field| wording.name(field);
        Err(Error::new(format!(
            "{on_expire} has no effect without {} or {}: add one, such as {}, or leave out {on_expire}",
            name("expires"),
            name("expires_at"),
            wording.example("expires", "2h"),
            on_expire = name("on_expire"),
        )))
    }
}

/// Adds this expiry to the message. If `last` is `None`, `fate` has no effect.
pub fn expiring(message: Message, last: Option<Last>, fate: Option<OnExpire>) -> Message {
    let message = match last {
        None => return message,
        Some(Last::After(time)) => message.expires_after(time),
        Some(Last::AtMs(ms)) => message.expires_at(ms),
    };
    match fate {
        Some(fate) => message.on_expire(fate),
        None => message,
    }
}

/// The options of a message about other pushes of its id.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unique {
    /// How long the id is remembered, whatever happens to the message.
    pub window: Option<Duration>,
    /// Whether the message is stored even if its id is remembered.
    pub reuse: bool,
    /// How long after the first push later ones may postpone the message.
    pub max_wait: Option<Duration>,
    /// Whether the push may replace a dead message.
    pub revive: bool,
    /// The time of the cancel that the push undoes, in Unix milliseconds.
    pub undo_ms: Option<u64>,
}

impl Unique {
    /// Adds these options to the message.
    pub fn apply(self, mut message: Message) -> Message {
        if let Some(window) = self.window {
            message = message.window(window);
        }
        if let Some(max_wait) = self.max_wait {
            message = message.max_wait(max_wait);
        }
        if self.reuse {
            message = message.reuse();
        }
        if self.revive {
            message = message.revive();
        }
        if let Some(cancelled_ms) = self.undo_ms {
            message = message.undo(cancelled_ms);
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn fraction_of_a_millisecond_is_cut_off() {
        let mut expiry = Expiry {
            expires_at: Some("2026-12-01T12:00:00.0019Z".to_owned()),
            ..Expiry::default()
        };
        let last = |expiry: &Expiry| expiry.last(None, NOW, Wording::Fields);
        assert_eq!(last(&expiry), Ok(Some(Last::AtMs(1_796_126_400_001))));
        expiry.expires = Some(Duration::from_secs(1));
        assert_eq!(last(&expiry), Ok(Some(Last::After(Duration::from_secs(1)))));
        assert_eq!(last(&Expiry::default()), Ok(None));
        let wrong = Expiry {
            expires_at: Some("2026-12-01 12:00".to_owned()),
            ..Expiry::default()
        };
        let error = last(&wrong).expect_err("no zone");
        assert_eq!(error.field(), Some("expires_at"));
        assert!(
            error.reason().contains(r#""tz": "Asia/Shanghai""#),
            "{error}"
        );
    }

    #[test]
    fn on_expire_alone_is_refused_in_the_wording() {
        let expiry = Expiry {
            on_expire: Some(OnExpire::Drop),
            ..Expiry::default()
        };
        for (wording, text) in [
            (
                Wording::Flags,
                "--expires or --expires-at: add one, such as --expires 2h",
            ),
            (
                Wording::Fields,
                "expires or expires_at: add one, such as \"expires\": \"2h\"",
            ),
        ] {
            let error = expiry.refuse_idle_fate(wording).expect_err("idle");
            assert!(error.to_string().contains(text), "{error}");
        }
        assert_eq!(Expiry::default().refuse_idle_fate(Wording::Flags), Ok(()));
    }
}

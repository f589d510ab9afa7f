//! The state of a message, as `get` and `held` answer it.

use crate::check::context::Context;
use crate::check::message::hypothesis::{Hypothesis, Status};
use crate::check::message::options::{Expiry, Options};
use crate::check::record::Record;
use crate::check::verdict::Kind;
use crate::history::State;

/// `None` if the message does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct ReadState(Option<Found>);

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Found {
    pub(crate) state: State,
    pub(crate) time_ms: u64,
    pub(crate) failures: u32,
    pub(crate) crashes: u32,
    pub(crate) version: u32,
    pub(crate) bytes: u32,
    pub(crate) options: u32,
    pub(crate) max_attempts: u32,
    pub(crate) expiry: Expiry,
}

impl ReadState {
    /// Parses `ABSENT`, or `IS <state> <time ms> <failures> <crashes> <version> <bytes> <options>`.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        if word == "ABSENT" {
            return Some(Self(None));
        }
        let mut words = word.strip_prefix("IS ")?.splitn(7, ' ');
        let options = Options::read(words.clone().nth(6).unwrap_or_default());
        Some(Self(Some(Found {
            state: crate::check::record::state(words.next()?)?,
            time_ms: words.next()?.parse().ok()?,
            failures: words.next()?.parse().ok()?,
            crashes: words.next()?.parse().ok()?,
            version: words.next()?.parse().ok()?,
            bytes: words.next()?.parse().ok()?,
            options: options.number,
            max_attempts: options.max_attempts,
            expiry: options.expiry,
        })))
    }
}

impl ReadState {
    pub(crate) fn found(self) -> Option<Found> {
        self.0
    }

    /// The time at which the message is due, unless it is dead.
    pub(crate) fn due_ms(self) -> Option<u64> {
        let waiting = self.0.filter(|found| found.state != State::Dead);
        waiting.map(|found| found.time_ms)
    }
}

impl Hypothesis {
    /// Whether the message may be under the lease of this claim: the claim is the current one, or
    /// its reply was lost.
    pub(crate) fn allows_held(
        &self,
        token: u64,
        (due_ms, attempt): (u64, u32),
        (version, bytes): (u32, u32),
        context: &Context<'_>,
    ) -> Result<(), Kind> {
        let is_lost = || {
            let mut lost = context.queue.lost.iter();
            lost.any(|claim| claim.most > 0 && claim.token == token)
        };
        let is_current = match self.token {
            Some(current) => current == token,
            None => is_lost(),
        };
        if self.status != Status::Leased || !is_current {
            return Err(Kind::Contradictions);
        }
        if (version, bytes) != (u32::from(self.version), self.bytes) {
            return Err(Kind::Unexpected);
        }
        let least = 1 + self.failures + self.crashes;
        if !(least..=least.saturating_add(self.slack)).contains(&attempt) {
            return Err(Kind::Miscounted);
        }
        if self.due_ms.is_some_and(|due| due != due_ms) {
            return Err(Kind::WrongDue);
        }
        Ok(())
    }

    pub(crate) fn allows_seen(
        &self,
        seen: ReadState,
        record: &Record,
        context: &Context<'_>,
    ) -> Result<(), Kind> {
        let Some(found) = seen.0 else {
            return if self.is_there() {
                Err(Kind::Lost)
            } else {
                Ok(())
            };
        };
        if let Status::Absent(gone) = self.status {
            return Err(self.although(gone, context));
        }
        self.allows_state(found.state)?;
        if (found.version, found.bytes) != (u32::from(self.version), self.bytes)
            || (found.options, found.expiry) != (self.options, self.expiry)
        {
            return Err(Kind::Unexpected);
        }
        let crashes = self.crashes..=self.crashes.saturating_add(self.slack);
        if found.failures != self.failures || !crashes.contains(&found.crashes) {
            return Err(Kind::Miscounted);
        }
        let stepped = context.epoch.stepped(self.seq, record.seq());
        let is_time = match self.status {
            // After a second crash its score differs from its due time.
            Status::Waiting if self.slack == 0 => self
                .score_ms
                .is_none_or(|score_ms| score_ms == found.time_ms),
            Status::Leased => found.time_ms >= self.deadline_ms,
            _ => true,
        };
        if is_time || stepped {
            return Ok(());
        }
        Err(if self.is_waiting() {
            Kind::WrongDue
        } else {
            Kind::WrongTimes
        })
    }
}

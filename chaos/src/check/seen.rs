//! What `get` says of a message.

use super::context::Context;
use super::life::{Life, Place};
use super::record::Record;
use super::verdict::Kind;
use crate::history::State;

/// Nothing of a message that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Seen(Option<Found>);

#[derive(Debug, Clone, Copy, PartialEq)]
struct Found {
    state: State,
    time_ms: u64,
    failures: u32,
    crashes: u32,
    version: u32,
}

impl Seen {
    /// `ABSENT`, or `IS <state> <time ms> <failures> <crashes> <version> <bytes> <options>`.
    pub(super) fn parse(word: &str) -> Option<Self> {
        if word == "ABSENT" {
            return Some(Self(None));
        }
        let mut words = word.strip_prefix("IS ")?.split(' ');
        Some(Self(Some(Found {
            state: super::record::state(words.next()?)?,
            time_ms: words.next()?.parse().ok()?,
            failures: words.next()?.parse().ok()?,
            crashes: words.next()?.parse().ok()?,
            version: words.next()?.parse().ok()?,
        })))
    }
}

impl Life {
    pub(super) fn allows_seen(&self, seen: Seen, record: &Record, context: &Context<'_>) -> Result<(), Kind> {
        let Some(found) = seen.0 else { return if self.is_there() { Err(Kind::Lost) } else { Ok(()) } };
        if let Place::Absent(gone) = self.place {
            return Err(self.although(gone, context));
        }
        self.allows_state(found.state)?;
        if found.version != u32::from(self.version) {
            return Err(Kind::Unexpected);
        }
        let crashes = self.crashes..=self.crashes.saturating_add(self.slack);
        if found.failures != self.failures || !crashes.contains(&found.crashes) {
            return Err(Kind::Miscounted);
        }
        // Since a second crash it waits for another time than its due.
        let is_known = self.due_ms == Some(self.not_before_ms) && found.crashes < 2;
        let stepped = context.epoch.stepped(self.seq, record.seq());
        if self.is_waiting() && is_known && !stepped && found.time_ms != self.not_before_ms {
            return Err(Kind::WrongDue);
        }
        Ok(())
    }
}

//! The effect of one call on one id, in few bytes: a run has tens of millions of them.

use crate::check::message::options::{Expiry, Options};
use crate::check::message::reads::ReadState;
use crate::history::{PushItem, State, Verb};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Record {
    pub(super) id: u32,
    pub(super) epoch: u16,
    pub(super) process: u16,
    /// Sort key: twice the `seq`, plus one if the call did not certainly make the change. So such a
    /// call comes after the call that made it.
    pub(super) order: u64,
    pub(super) now_us: u64,
    /// When the call was sent and answered, by the clock of the processes. An unanswered call
    /// cannot be applied after `answered_us`.
    pub(super) asked_us: u64,
    pub(super) answered_us: u64,
    pub(super) what: What,
}

impl Record {
    pub(super) fn seq(&self) -> u64 {
        self.order / 2
    }

    pub(super) fn now(&self) -> u64 {
        self.now_us / 1_000
    }

    pub(super) fn now_up(&self) -> u64 {
        self.now_us.div_ceil(1_000)
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum What {
    Push {
        push: Push,
        verdict: Pushed,
    },
    Claim {
        token: u64,
        due_ms: u64,
        lease_ms: u32,
        version: u32,
        attempt: u32,
        bytes: u32,
        /// The options, as in `Push::options`.
        options: u32,
        expiry: Expiry,
        cost: u32,
    },
    /// `answered_ms` is the time in the item result.
    Settle {
        verb: Verb,
        verdict: Settled,
        token: u64,
        time: Time,
        answered_ms: u64,
    },
    /// `alone`: the call named no other message.
    Change {
        verb: Verb,
        verdict: Changed,
        time: Time,
        expected: Expected,
        alone: bool,
        answered_ms: u64,
    },
    /// The answer of a get.
    ReadState(ReadState),
    /// The answer of `held`: the lease of this claim covers the message.
    Held {
        token: u64,
        due_ms: u64,
        deadline_ms: u64,
        version: u32,
        attempt: u32,
        bytes: u32,
    },
    /// A step on the way to another partition; `item` is the place in the list of all moved
    /// messages, and names none if the call got no answer.
    Move {
        step: Step,
        item: u32,
    },
    Left {
        state: State,
        failures: u32,
        crashes: u32,
        time_ms: u64,
    },
}

/// What happens to a message that moves to another partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It leaves its partition in a batch.
    Departs,
    /// An answer shows that it is on its way.
    Away,
    /// The batch never arrives: the message is stored again where it was.
    Returns,
    /// It is stored in the other partition.
    Arrives,
    /// An answer shows that it was stored earlier.
    Arrived,
}

/// A due time or a delay as sent.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Time(u64);

const RELATIVE: u64 = 1 << 63;

impl Time {
    /// Parses `+ms` or Unix ms; any other text gives the earliest time.
    pub(super) fn parse(text: &str) -> Self {
        match text.strip_prefix('+') {
            Some(delay) => Self::after(delay.parse().unwrap_or(0)),
            None => Self(text.parse().unwrap_or(0) & !RELATIVE),
        }
    }

    pub(super) fn after(delay_ms: u64) -> Self {
        Self(delay_ms | RELATIVE)
    }

    pub(super) fn delay_ms(self) -> Option<u64> {
        (self.0 & RELATIVE != 0).then_some(self.0 & !RELATIVE)
    }

    /// The due time, if the server's clock, rounded up, shows `now_up`.
    pub(super) fn due_ms(self, now_up: u64) -> u64 {
        self.delay_ms().map_or(self.0, |delay_ms| now_up + delay_ms)
    }
}

/// The due time that a reschedule expects; none if it expects none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Expected(u64);

impl Expected {
    pub(super) const ANY: Self = Self(u64::MAX);

    pub(super) fn parse(text: &str) -> Self {
        Self(text.parse().unwrap_or(u64::MAX))
    }

    pub(super) fn due_ms(self) -> Option<u64> {
        (self != Self::ANY).then_some(self.0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Push {
    pub(super) time: Time,
    pub(super) until_ms: u64,
    /// The number of the process's call of which this is a try; 0 if unknown.
    pub(super) call: u32,
    pub(super) version: u16,
    pub(super) bytes: u32,
    /// The options as they must be in a delivery, as a number that differs if they differ.
    pub(super) options: u32,
    /// The message's own limit; 0: it has the queue's.
    pub(super) max_attempts: u32,
    pub(super) expiry: Expiry,
    pub(super) conflict: Conflict,
    pub(super) held: Held,
    /// From `FINISHED <ms>`: when the earlier message ended or moved. 0 with any other result.
    pub(super) ended_ms: u64,
    /// Whether the caller got the outcome `finished`.
    pub(super) believed: bool,
}

/// Which servers have the message, by the outcome of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// The caller asked for no replica.
    NotAsked,
    /// Too few replicas confirmed it, or the caller got no outcome.
    Unconfirmed,
    Replicas,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Conflict {
    Keep,
    Reschedule,
    Replace,
}

impl Push {
    pub(super) fn of(
        PushItem(_, due, version, bytes, options): &PushItem,
        until_ms: u64,
        nonce: &str,
    ) -> Self {
        let options = Options::read(options);
        let call = if until_ms == 0 {
            0
        } else {
            number_of(&format!("{until_ms}{nonce}"))
        };
        Self {
            time: Time::parse(due),
            until_ms,
            call,
            version: u16::try_from(*version).unwrap_or(u16::MAX),
            bytes: *bytes,
            options: options.number,
            max_attempts: options.max_attempts,
            expiry: options.expiry,
            conflict: options.conflict,
            held: Held::NotAsked,
            ended_ms: 0,
            believed: false,
        }
    }
}

/// The whole milliseconds of a time that may have a fraction.
pub(super) fn whole_ms(text: &str) -> u64 {
    text.split('.')
        .next()
        .and_then(|ms| ms.parse().ok())
        .unwrap_or(0)
}

/// The number by which the checker knows this text; 0 for an empty text.
pub(super) fn number_of(text: &str) -> u32 {
    let hash = crate::workload::hash(text.as_bytes());
    if text.is_empty() {
        0
    } else {
        (hash >> 32) as u32 | 1
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pushed {
    Created,
    Exists(State),
    Moved,
    Finished,
    Refused,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    /// OK, SCHEDULED
    Done,
    Dead,
    /// The message expires before its next attempt.
    Dropped,
    Gone,
    Lost,
    Refused,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Changed {
    /// CANCELLED, MOVED, REQUEUED
    Done,
    Already,
    Conflict,
    /// LEASED, DEAD, NOT_DEAD
    Is(State),
    Absent,
    Refused,
    Unknown,
}

/// Splits an item result into its first word and the number after it.
pub(super) fn split(verdict: &str) -> (&str, &str) {
    verdict.split_once(' ').unwrap_or((verdict, ""))
}

pub(super) fn state(word: &str) -> Option<State> {
    Some(match word {
        "scheduled" => State::Scheduled,
        "ready" => State::Ready,
        "leased" => State::Leased,
        "dead" => State::Dead,
        _ => return None,
    })
}

/// The result of a push; `None` for a word that the script does not use.
pub(super) fn pushed(verdict: &str) -> Option<Pushed> {
    Some(match split(verdict) {
        ("CREATED", _) => Pushed::Created,
        ("EXISTS", word) => Pushed::Exists(state(word)?),
        ("MOVED", _) => Pushed::Moved,
        ("FINISHED", _) => Pushed::Finished,
        ("EXPIRED" | "FULL" | "INVALID", _) => Pushed::Refused,
        _ => return None,
    })
}

pub(super) fn settled(verdict: &str) -> Option<(Settled, u64)> {
    let (word, rest) = split(verdict);
    let settled = match word {
        "OK" | "SCHEDULED" => Settled::Done,
        "DEAD" => Settled::Dead,
        "DROPPED" => Settled::Dropped,
        "GONE" => Settled::Gone,
        "LOST" => Settled::Lost,
        "INVALID" | "REFUSED" => Settled::Refused,
        _ => return None,
    };
    Some((settled, rest.parse().unwrap_or(0)))
}

pub(super) fn changed(verdict: &str) -> Option<(Changed, u64)> {
    let (word, rest) = split(verdict);
    let changed = match word {
        // An earlier try, whose reply was lost, cancelled the message; this one left later changes
        // alone.
        "CANCELLED" if rest == "earlier" => Changed::Refused,
        "CANCELLED" | "MOVED" | "REQUEUED" => Changed::Done,
        "ALREADY" => Changed::Already,
        "CONFLICT" => Changed::Conflict,
        "LEASED" => Changed::Is(State::Leased),
        "DEAD" => Changed::Is(State::Dead),
        "NOT_DEAD" => Changed::Is(state(rest)?),
        "ABSENT" => Changed::Absent,
        "INVALID" => Changed::Refused,
        _ => return None,
    };
    Some((changed, rest.parse().unwrap_or(0)))
}

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.delay_ms() {
            Some(delay_ms) => write!(f, "+{delay_ms}"),
            None => write!(f, "{}", self.0),
        }
    }
}

//! What happened to one id in one call, in few bytes: a run has tens of millions of them.

use super::seen::Seen;
use crate::history::{PushItem, State, Verb};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Record {
    pub(super) id: u32,
    pub(super) epoch: u16,
    pub(super) process: u16,
    /// Twice the `seq`, plus one if the call changed nothing or may have: then it came after the one that did.
    pub(super) order: u64,
    pub(super) now_us: u64,
    /// When it was sent and answered, by the clock of the processes.
    pub(super) asked_us: u64,
    pub(super) told_us: u64,
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
    },
    /// `told_ms` is the time in the verdict.
    Settle {
        verb: Verb,
        verdict: Settled,
        token: u64,
        time: Time,
        told_ms: u64,
    },
    Change {
        verb: Verb,
        verdict: Changed,
        time: Time,
        told_ms: u64,
    },
    /// A get.
    Seen(Seen),
    Left {
        state: State,
        failures: u32,
        crashes: u32,
    },
}

/// A due or a delay as it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Time(u64);

const RELATIVE: u64 = 1 << 63;

impl Time {
    /// `+ms` or Unix ms; the earliest there is if it is neither.
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

    /// The due if the server's clock, rounded up, says this.
    pub(super) fn due_ms(self, now_up: u64) -> u64 {
        self.delay_ms().map_or(self.0, |delay_ms| now_up + delay_ms)
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Push {
    pub(super) time: Time,
    pub(super) until_ms: u64,
    pub(super) version: u16,
    /// 0: the queue's.
    pub(super) max_attempts: u32,
    pub(super) conflict: Conflict,
    pub(super) reuse: bool,
    pub(super) held: Held,
}

/// Who has it besides the master, as its caller was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// Nobody was asked.
    Nobody,
    /// Replicas were asked, and did not confirm it, or nobody was told of it.
    Perhaps,
    Replicas,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Conflict {
    Keep,
    Reschedule,
    Replace,
}

impl Push {
    pub(super) fn of(PushItem(_, due, version, _, options): &PushItem, until_ms: u64) -> Self {
        let mut push = Self {
            time: Time::parse(due),
            until_ms,
            version: u16::try_from(*version).unwrap_or(u16::MAX),
            max_attempts: 0,
            conflict: Conflict::Keep,
            reuse: false,
            held: Held::Nobody,
        };
        for word in options.split(' ') {
            match word.split_once('=').unwrap_or((word, "")) {
                ("reuse", _) => push.reuse = true,
                ("max_attempts", number) => push.max_attempts = number.parse().unwrap_or(0),
                ("on_conflict", "reschedule") => push.conflict = Conflict::Reschedule,
                ("on_conflict", "replace") => push.conflict = Conflict::Replace,
                ("on_conflict", _) => push.conflict = Conflict::Keep,
                _ => {}
            }
        }
        push
    }

    /// Whether a client must not repeat it by itself.
    pub(super) fn is_unsafe(&self) -> bool {
        self.reuse || self.conflict != Conflict::Keep
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
    Gone,
    Lost,
    Refused,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Changed {
    /// CANCELLED, MOVED, REQUEUED
    Done,
    /// ALREADY, CONFLICT
    Waits,
    /// LEASED, DEAD, NOT_DEAD
    Is(State),
    Absent,
    Refused,
    Unknown,
}

/// The first word of a verdict and the number behind it.
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

/// Nothing if the script does not word it so.
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
        "GONE" => Settled::Gone,
        "LOST" => Settled::Lost,
        "INVALID" => Settled::Refused,
        _ => return None,
    };
    Some((settled, rest.parse().unwrap_or(0)))
}

pub(super) fn changed(verdict: &str) -> Option<(Changed, u64)> {
    let (word, rest) = split(verdict);
    let changed = match word {
        // By a call whose reply was lost; this one left alone what has come since.
        "CANCELLED" if rest == "earlier" => Changed::Refused,
        "CANCELLED" | "MOVED" | "REQUEUED" => Changed::Done,
        "ALREADY" | "CONFLICT" => Changed::Waits,
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

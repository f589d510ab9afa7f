//! The routine outcomes of calls: values, not errors.

use std::fmt;

/// Where a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Waiting for its due time, or due and waiting for room among the ready.
    Scheduled,
    /// Due, waiting for a free handler.
    Ready,
    /// With a handler, under a lease.
    Leased,
    /// Given up: a limit was reached or a handler buried it. It stays until it is requeued, cancelled, purged or trimmed.
    Dead,
}

impl State {
    /// The word of the protocol: `scheduled`, `ready`, `leased` or `dead`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Ready => "ready",
            Self::Leased => "leased",
            Self::Dead => "dead",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        [Self::Scheduled, Self::Ready, Self::Leased, Self::Dead]
            .into_iter()
            .find(|state| state.as_str() == word)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What [`Queue::push`](crate::Queue::push) did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pushed {
    /// The message is stored.
    Created,
    /// The id is there already, in this state; nothing was changed. A repeated push reads this.
    Exists(State),
    /// The waiting message was moved or replaced, as [`OnConflict`](crate::OnConflict) asked.
    Moved,
    /// An earlier attempt of this call, whose reply was lost, was applied, and the message has been delivered or cancelled since.
    /// Only the library's own repetition of a call answers this.
    Finished,
}

/// What [`Queue::cancel`](crate::Queue::cancel) did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cancelled {
    /// It will never be delivered.
    Cancelled,
    /// Too late: a handler has it.
    Leased,
    /// It is dead; [`Queue::cancel_dead`](crate::Queue::cancel_dead) removes it all the same.
    Dead,
    /// There is no such message (any more); of a cancel that is made again more than 12 s after one that took effect, too.
    Absent,
}

/// What [`Queue::reschedule`](crate::Queue::reschedule) did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rescheduled {
    /// It is due at this Unix millisecond now, and at no other.
    Moved(u64),
    /// It is due at this Unix millisecond, not at the expected one; nothing was changed. Made again by the caller after an
    /// error that left open whether it had taken effect, a move by a delay reads this of itself, with the due that it set; one
    /// to a fixed time reads `Moved`.
    Conflict(u64),
    /// Too late: a handler has it.
    Leased,
    /// It is dead.
    Dead,
    /// There is no such message (any more).
    Absent,
}

/// What [`Queue::run_now`](crate::Queue::run_now) did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunNow {
    /// It is due now.
    Moved,
    /// It was due already.
    Already,
    /// A handler has it.
    Leased,
    /// It is dead; [`Queue::requeue`](crate::Queue::requeue) revives it.
    Dead,
    /// There is no such message (any more).
    Absent,
}

/// What [`Queue::requeue`](crate::Queue::requeue) did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Requeued {
    /// It is due now, its attempts counted from none.
    Requeued,
    /// It is not dead but in this state.
    NotDead(State),
    /// There is no such message (any more).
    Absent,
}

/// What an ack, again, release or bury did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Settled {
    /// As asked.
    Done,
    /// There is no such message any more. Of an ack: it was acked, perhaps by an earlier try of this very call whose reply was
    /// lost. Of the others: their lease was lost, or an earlier try had acted, and then the message was acked by another
    /// consumer, cancelled or purged.
    Gone,
    /// The message is there, and this claim of it has ended: its lease was lost, and another delivery of the message is on its
    /// way or was made; or, of again, release and bury, an earlier try of this very call did as asked and its reply was lost.
    /// Which of the two it was nobody knows; [`Queue::get`](crate::Queue::get) shows the message as it is now. This try
    /// changed nothing.
    Lost,
}

/// What a retry did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Retried {
    /// It is due again at this Unix millisecond.
    Scheduled(u64),
    /// That was its last attempt: it is dead.
    Dead,
    /// As [`Settled::Gone`] of release.
    Gone,
    /// As [`Settled::Lost`] of release: perhaps an earlier try of this very call has charged the failure.
    Lost,
}

/// What an extension of a lease did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Extended {
    /// The lease runs until this Unix millisecond of the server.
    Until(u64),
    /// There is no such message any more: the lease was lost, or it was settled.
    Gone,
    /// The lease was lost, or the delivery was settled.
    Lost,
}

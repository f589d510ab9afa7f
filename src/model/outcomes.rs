//! The routine outcomes of calls: values, not errors.

use std::fmt;

use crate::model::receipt::Receipt;

/// Where a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageState {
    /// Waiting for its due time, also between two attempts. A due message stays scheduled while the
    /// ready list is full, the queue is paused or no worker runs.
    Scheduled,
    /// Due, waiting for a free handler.
    Ready,
    /// With a handler, under a lease.
    Leased,
    /// Dead: a limit was reached or a handler buried it. It stays until it is requeued, cancelled,
    /// purged or trimmed.
    Dead,
}

impl MessageState {
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

impl fmt::Display for MessageState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What [`Queue::push`](crate::Queue::push) did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "only `Created`, `Moved` and `Next` changed the queue"]
pub enum PushOutcome {
    /// The message is stored.
    Created,
    /// A message with this id is in the queue, in this state; nothing was changed. A repeated push
    /// returns this.
    Exists(MessageState),
    /// The waiting message was rescheduled or replaced, as [`OnConflict`](crate::OnConflict) asked.
    Moved,
    /// A handler has the message of this id. The pushed one is kept for after it, as
    /// [`OnConflict::Next`](crate::OnConflict::Next) asked, in place of any that was kept before.
    Next,
    /// A push with a [`window`](crate::Message::window) stored a message with this id, and that
    /// message has ended. Until this Unix millisecond pushes of the id store nothing. After an error
    /// that left open whether a push took effect, the caller who repeats it gets this if the first
    /// one did, or if another push of the id had; the two cannot be told apart.
    Remembered(u64),
    /// An earlier try of this call was applied and its reply was lost; the message has been
    /// delivered or cancelled since. Or the push [undoes](crate::Message::undo) a cancel, and the id
    /// was pushed or cancelled again since. Nothing was changed.
    Finished,
}

/// What [`Queue::cancel`](crate::Queue::cancel) did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "only after `Cancelled` the message is never delivered"]
pub enum CancelOutcome {
    /// The message will never be delivered. Each cancel within 12 s of the last one returns this.
    Cancelled,
    /// A handler has the message, and it is too late for that one. The message that a push with
    /// [`OnConflict::Next`](crate::OnConflict::Next) kept for after it will never be delivered. If
    /// the reply is lost, the library's repetition returns `Leased` instead.
    Next,
    /// Too late: a handler has it.
    Leased,
    /// The message is dead; [`Queue::cancel_dead`](crate::Queue::cancel_dead) removes it.
    Dead,
    /// There is no such message, or no more. A cancel that is repeated later than 12 s after one
    /// that took effect also returns this.
    Absent,
}

/// What [`Queue::delete_incarnation`](crate::Queue::delete_incarnation) did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "only `Deleted` removed the queue"]
pub enum DeleteOutcome {
    /// The queue is removed with all its messages.
    Deleted,
    /// There is no such queue, or no more.
    Absent,
    /// The queue has another incarnation: it was deleted and created again. Nothing was changed.
    Changed,
}

/// What [`Queue::unused`](crate::Queue::unused) found, or
/// [`Queue::delete_unused`](crate::Queue::delete_unused) did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "only `Since` means that the queue is unused"]
pub enum UnusedOutcome {
    /// The queue is empty, and was not used since this Unix millisecond, or an earlier one.
    /// `delete_unused` has deleted it.
    Since(u64),
    /// There is no such queue.
    Absent,
    /// The queue stays.
    Kept(KeepReason),
}

/// Why [`Queue::delete_unused`](crate::Queue::delete_unused) keeps a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeepReason {
    /// The queue has messages: scheduled, ready, leased or dead ones.
    Messages,
    /// The queue has schedules.
    Schedules,
    /// The queue has a map of partitions.
    Partitions,
    /// An operator has set a limit of it or its layout, or has paused it.
    Settings,
    /// A window of an id has not ended: the deletion would forget it.
    Windows,
    /// No report of a node shows that the queue was unused for the asked time.
    Used,
    /// This release does not know the layout of the queue.
    Layout,
}

impl KeepReason {
    /// All reasons.
    pub(crate) const ALL: [Self; 7] = [
        Self::Messages,
        Self::Schedules,
        Self::Partitions,
        Self::Settings,
        Self::Windows,
        Self::Used,
        Self::Layout,
    ];

    /// The reason in one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Schedules => "schedules",
            Self::Partitions => "partitions",
            Self::Settings => "settings",
            Self::Windows => "windows",
            Self::Used => "used",
            Self::Layout => "layout",
        }
    }
}

/// What [`Queue::reschedule`](crate::Queue::reschedule) did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "only `Moved` changed the due time"]
pub enum RescheduleOutcome {
    /// The message is due at this Unix millisecond now.
    Moved(u64),
    /// The message is due at this Unix millisecond, not at the expected one; nothing was changed.
    /// After an error that left open whether a reschedule took effect, a caller who repeats it gets
    /// this for a delay, with the due time that the first try set; for a fixed time the caller
    /// gets `Moved`.
    Conflict(u64),
    /// Too late: a handler has it.
    Leased,
    /// The message is dead.
    Dead,
    /// There is no such message (any more).
    Absent,
}

/// What [`Queue::run_now`](crate::Queue::run_now) did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "only `Moved` changed the due time"]
pub enum RunNowOutcome {
    /// The message is due now.
    Moved,
    /// The message was due already.
    Already,
    /// A handler has it.
    Leased,
    /// The message is dead; [`Queue::requeue`](crate::Queue::requeue) revives it.
    Dead,
    /// There is no such message (any more).
    Absent,
}

/// What [`Queue::requeue`](crate::Queue::requeue) did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "only `Requeued` changed the message"]
pub enum RequeueOutcome {
    /// The message is due now, its attempts counted from none.
    Requeued,
    /// The message is not dead but in this state.
    NotDead(MessageState),
    /// There is no such message (any more).
    Absent,
}

/// What an ack, again, release or bury did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "after `Lost` the message is delivered again"]
pub enum SettleOutcome {
    /// The settlement did what was asked.
    Done,
    /// There is no such message any more. For an ack: the message was acked, perhaps by an earlier
    /// try of this call whose reply was lost. For the others: the lease was lost, or an earlier
    /// try acted, and then another consumer acked the message, or it was cancelled or purged.
    Gone,
    /// The message exists, but this claim of it has ended; this try changed nothing. Either the
    /// lease was lost, and the message is or will be delivered again; or, for again, release and
    /// bury, an earlier try of this call acted and its reply was lost. The two cannot be told
    /// apart; [`Queue::get`](crate::Queue::get) shows the message as it is now.
    Lost,
}

/// What an ack with follow-up messages did.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "only after `Done` the messages were pushed by this call"]
pub enum AckPushOutcome {
    /// The message is acked, and these are the receipts of the messages that follow it, in their
    /// order.
    Done(Vec<Receipt>),
    /// As [`SettleOutcome::Gone`] of an ack: perhaps an earlier try of this call acted, and stored
    /// the messages.
    Gone,
    /// As [`SettleOutcome::Lost`]; the message exists, and another consumer has it or will have it.
    /// An earlier try of this call may have acted, if the id was pushed again since.
    Lost,
}

/// What a retry did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "after `Dead` and `Dropped` the message is not tried again"]
pub enum RetryOutcome {
    /// The message is due again at this Unix millisecond.
    Scheduled(u64),
    /// That was the last attempt, or the message expires before the next one: it is dead.
    Dead,
    /// The message expires before the next attempt, and was pushed with
    /// [`OnExpire::Drop`](crate::OnExpire::Drop): it is gone.
    Dropped,
    /// As [`SettleOutcome::Gone`] of release.
    Gone,
    /// As [`SettleOutcome::Lost`] for release: perhaps an earlier try of this call has counted the
    /// failure.
    Lost,
}

/// What a snooze did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "after `Dead` and `Dropped` the message does not come back"]
pub enum SnoozeOutcome {
    /// The message is due again at this Unix millisecond.
    Scheduled(u64),
    /// The message expires before that time: it is dead.
    Dead,
    /// The message expires before that time, and was pushed with
    /// [`OnExpire::Drop`](crate::OnExpire::Drop): it is gone.
    Dropped,
    /// As [`SettleOutcome::Gone`] of release.
    Gone,
    /// As [`SettleOutcome::Lost`] for release: perhaps an earlier try of this call has snoozed the
    /// message.
    Lost,
}

/// What a throttle did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "after `Gone` and `Lost` the queue was not closed by this call"]
pub enum ThrottleOutcome {
    /// The message waits again, and its partition is closed until this Unix millisecond: later than
    /// asked for if it was closed for longer, earlier if
    /// [`QueueLimits::max_throttle`](crate::QueueLimits::max_throttle) allows less.
    Until(u64),
    /// As [`SettleOutcome::Gone`] of release.
    Gone,
    /// As [`SettleOutcome::Lost`] for release: perhaps an earlier try of this call has closed the
    /// queue.
    Lost,
}

/// What an extension of a lease did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "only after `Until` the lease goes on"]
pub enum ExtendOutcome {
    /// The lease runs until this Unix millisecond of the server.
    Until(u64),
    /// There is no such message any more: the lease was lost, or it was settled.
    Gone,
    /// The lease was lost, or the delivery was settled.
    Lost,
}

/// How the message of a remembered id ended: see [`Queue::end_of`](crate::Queue::end_of).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageEnd {
    /// How it ended.
    pub kind: EndKind,
    /// When, in Unix milliseconds of the server.
    pub ended_at_ms: u64,
    /// Until when a [`window`](crate::Message::window) remembers the id, in Unix milliseconds: a push
    /// of it stores nothing before. `None` if no window does, such as after a cancel or a purge.
    pub remembered_until_ms: Option<u64>,
}

/// How a message ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndKind {
    /// A handler acked it.
    Finished,
    /// The message expired and was dropped, as its push asked with
    /// [`OnExpire::Drop`](crate::OnExpire::Drop).
    Expired,
    /// The message was cancelled, or purged.
    Cancelled,
}

impl EndKind {
    /// The name of this end in the protocol: `finished`, `expired` or `cancelled`.
    ///
    /// ```
    /// assert_eq!(dueq::inspect::EndKind::Finished.as_str(), "finished");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        [Self::Finished, Self::Expired, Self::Cancelled]
            .into_iter()
            .find(|ended| ended.as_str() == word)
    }
}

/// What [`Queue::wait`](crate::Queue::wait) found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitOutcome {
    /// The message ended so.
    Ended(MessageEnd),
    /// The message is dead: it stays in the queue, and no handler gets it.
    Dead,
    /// The queue has no message of this id, and does not remember one: it ended without a
    /// [`window`](crate::Message::window), longer ago than the queue remembers, or was never pushed.
    Absent,
    /// The time is up, and the message is still in this state.
    TimedOut(MessageState),
}

//! The outcomes of calls. Expected outcomes are values, not errors.

use std::fmt;

use crate::model::receipt::Receipt;

/// The state of a message that is in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageState {
    /// Waiting for its due time, also between two attempts. A due message stays scheduled while the
    /// ready list is full, the queue is paused or no worker runs.
    Scheduled,
    /// Due, waiting for a free handler.
    Ready,
    /// A handler has the message, under a lease.
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
    /// A handler has the message of this id. The queue keeps the pushed message until that delivery
    /// ends, as [`OnConflict::Next`](crate::OnConflict::Next) asked, and drops any that it had kept
    /// before.
    Next,
    /// A push with a [`window`](crate::Message::window) stored a message with this id, and that
    /// message has ended. Until this Unix millisecond pushes of the id store nothing. A caller that
    /// repeats a push after `Applied::Unknown` also gets this if the first push took effect. It
    /// cannot tell this from another push of the id.
    Remembered(u64),
    /// An earlier try of this call was applied and its reply was lost; the message has been
    /// delivered or cancelled since. Also returned if the push should [undo](crate::Message::undo)
    /// a cancel, and the id was pushed or cancelled again since. Nothing was changed.
    Finished,
}

/// What [`Queue::cancel`](crate::Queue::cancel) did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "only after `Cancelled` the message is never delivered"]
pub enum CancelOutcome {
    /// The message will never be delivered. Each cancel within 12 s of the last one returns this.
    Cancelled,
    /// The cancel removed the next message, which a push with
    /// [`OnConflict::Next`](crate::OnConflict::Next) had left. It was too late for the present
    /// message, which a handler has. If the reply is lost, the library's repetition returns
    /// `Leased` instead.
    Next,
    /// Too late: a handler has the message.
    Leased,
    /// The message is dead; [`Queue::cancel_dead`](crate::Queue::cancel_dead) removes it.
    Dead,
    /// The queue has no message of this id, or no longer has it. A cancel that is repeated later
    /// than 12 s after one that took effect also returns this.
    Absent,
}

/// What [`Queue::delete_incarnation`](crate::Queue::delete_incarnation) did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "only `Deleted` removed the queue"]
pub enum DeleteOutcome {
    /// The queue is removed with all its messages.
    Deleted,
    /// There is no such queue, or it no longer exists.
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
    /// The queue is empty, and has not been used since this Unix millisecond or for longer.
    /// `delete_unused` has deleted it.
    Since(u64),
    /// There is no such queue.
    Absent,
    /// The queue was not deleted, for this reason.
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
    /// An operator has set a limit or the layout of the queue, or has paused it.
    Settings,
    /// A window of an id has not ended: the deletion would forget it.
    Windows,
    /// The reports of nodes do not show that the queue was unused for the required time.
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
    /// Nothing was changed: the message is due at this Unix millisecond, not at the expected one. A
    /// caller may also get this for repeating a reschedule after `Applied::Unknown`: if the
    /// reschedule was by a delay and took effect. For a fixed time the caller then gets `Moved`.
    Conflict(u64),
    /// Too late: a handler has the message.
    Leased,
    /// The message is dead.
    Dead,
    /// The queue has no message of this id.
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
    /// A handler has the message.
    Leased,
    /// The message is dead; [`Queue::requeue`](crate::Queue::requeue) revives it.
    Dead,
    /// The queue has no message of this id.
    Absent,
}

/// What [`Queue::requeue`](crate::Queue::requeue) did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "only `Requeued` changed the message"]
pub enum RequeueOutcome {
    /// The message is due now, with its attempts reset.
    Requeued,
    /// The message is not dead: it is in this state.
    NotDead(MessageState),
    /// The queue has no message of this id.
    Absent,
}

/// What an ack, again, release or bury did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "after `Lost` the message is delivered again"]
pub enum SettleOutcome {
    /// The settlement did what was asked.
    Done,
    /// The message is no longer in the queue. For an ack: the message was acked, perhaps by an
    /// earlier try of this call whose reply was lost. For another settlement: the lease was lost,
    /// or an earlier try acted, and then another consumer acked the message, or it was cancelled or
    /// purged.
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
    /// The message is acked. These are the receipts of its follow-ups, in their order.
    Done(Vec<Receipt>),
    /// The message is no longer in the queue: it was acked, perhaps by an earlier try of this call,
    /// which stored the follow-ups. See [`SettleOutcome::Gone`].
    Gone,
    /// The message is in the queue, and another consumer has it or will have it: see
    /// [`SettleOutcome::Lost`]. An earlier try of this call may have acted, if the id was pushed
    /// again since.
    Lost,
}

/// What a retry did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "after `Dead` and `Dropped` the message is not tried again"]
pub enum RetryOutcome {
    /// The message is due again at this Unix millisecond.
    Scheduled(u64),
    /// The message is dead: that was its last attempt, or it would expire before the next one.
    Dead,
    /// The message was removed: it would expire before the next attempt, and was pushed with
    /// [`OnExpire::Drop`](crate::OnExpire::Drop).
    Dropped,
    /// The message is no longer in the queue: the lease was lost, or an earlier try acted. See
    /// [`SettleOutcome::Gone`].
    Gone,
    /// The message is in the queue, but this claim of it has ended: see [`SettleOutcome::Lost`]. An
    /// earlier try of this call may have counted the failure.
    Lost,
}

/// What [`Queue::bury`](crate::Queue::bury) did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "after `Marked` a handler still has the message"]
pub enum BuryOutcome {
    /// The message waited, and is dead now.
    Buried,
    /// A handler has the message. It will be dead when its lease ends, unless the handler acks it.
    Marked,
    /// It was dead already; nothing was changed.
    Dead,
    /// There is no message with this id.
    Absent,
}

/// What a snooze did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "after `Dead` and `Dropped` the message does not come back"]
pub enum SnoozeOutcome {
    /// The message is due again at this Unix millisecond.
    Scheduled(u64),
    /// The message is dead: it would expire before the new due time.
    Dead,
    /// The message was removed: it would expire before the new due time, and was pushed with
    /// [`OnExpire::Drop`](crate::OnExpire::Drop).
    Dropped,
    /// The message is no longer in the queue: the lease was lost, or an earlier try acted. See
    /// [`SettleOutcome::Gone`].
    Gone,
    /// The message is in the queue, but this claim of it has ended: see [`SettleOutcome::Lost`]. An
    /// earlier try of this call may have snoozed it.
    Lost,
}

/// What a throttle did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "after `Gone` and `Lost` the queue was not closed by this call"]
pub enum ThrottleOutcome {
    /// The message waits again, and its partition is closed until this Unix millisecond: later than
    /// asked for if the partition was already closed for longer, earlier if
    /// [`QueueLimits::max_throttle`](crate::QueueLimits::max_throttle) allows less.
    Until(u64),
    /// The message is no longer in the queue: the lease was lost, or an earlier try acted. See
    /// [`SettleOutcome::Gone`].
    Gone,
    /// The message is in the queue, but this claim of it has ended: see [`SettleOutcome::Lost`]. An
    /// earlier try of this call may have closed the queue.
    Lost,
}

/// What an extension of a lease did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "only after `Until` the lease goes on"]
pub enum ExtendOutcome {
    /// The lease runs until this Unix millisecond of the server.
    Until(u64),
    /// The message is no longer in the queue: the lease was lost, or the delivery was settled.
    Gone,
    /// The message is in the queue, but the lease was lost or the delivery was settled.
    Lost,
}

/// How the message of a remembered id ended: see [`Queue::end_of`](crate::Queue::end_of).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageEnd {
    /// The way in which the message ended.
    pub kind: EndKind,
    /// When, in Unix milliseconds of the server.
    pub ended_at_ms: u64,
    /// Until when a [`window`](crate::Message::window) remembers the id, in Unix milliseconds:
    /// until then a push of the id stores nothing. `None` if no window does, such as after a cancel
    /// or a purge.
    pub remembered_until_ms: Option<u64>,
}

/// How a message ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndKind {
    /// A handler acked the message.
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
    /// The message ended in this way.
    Ended(MessageEnd),
    /// The message is dead: it stays in the queue, and no handler gets it.
    Dead,
    /// The queue has no message of this id, and does not remember one. The message ended without a
    /// [`window`](crate::Message::window), ended longer ago than the queue remembers, or was never
    /// pushed.
    Absent,
    /// The time is up, and the message is still in this state.
    TimedOut(MessageState),
}

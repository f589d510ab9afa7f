//! What a push says about other pushes of its id, and about when its message expires.

/// What a push does if its id is scheduled or ready already. A push never changes a message that a
/// handler has. It changes a dead message only with [`revive`](crate::Message::revive).
///
/// Pushes with `Keep` call the script `push`, the others call `upsert`, in batches of their own:
/// the two kinds may reach Redis in any order, unless the caller awaits the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum OnConflict {
    /// The waiting message stays as it is.
    #[default]
    Keep,
    /// The waiting message gets the new due time; payload and options stay.
    Reschedule,
    /// The waiting message is replaced: payload, due time and options.
    Replace,
    /// Replaces a waiting message as `Replace` does. If a handler has the message, the queue keeps
    /// the new one until that delivery ends. The push returns
    /// [`PushOutcome::Next`](crate::outcomes::PushOutcome::Next).
    ///
    /// However that delivery ends, even by a crash, the kept message then takes the id and waits,
    /// with its own payload, options and due time, and no attempts. A delivery that fails is not
    /// retried: the kept message takes its place. The queue keeps only the last one that was
    /// pushed. A cancel removes it and returns
    /// [`CancelOutcome::Next`](crate::outcomes::CancelOutcome::Next).
    ///
    /// Needs layout 3: see [`QueueLimits::layout3`](crate::QueueLimits::layout3). A push into a
    /// queue of an older layout fails with
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) and says so. Unlike `Reschedule`
    /// and `Replace`, the library repeats such a push when its reply is lost.
    Next,
}

/// When a message expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expires {
    /// This number of milliseconds after the due time.
    AfterMs(u64),
    /// At this moment, in Unix milliseconds.
    AtMs(u64),
}

/// What becomes of a message that expires before a handler gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum OnExpire {
    /// The message is dead: it is listed with the reason, and can be requeued.
    #[default]
    Dead,
    /// The message is removed, and only [`QueueStats::expired`](crate::QueueStats::expired) counts it.
    Drop,
}

/// The options of a push that concern other pushes of the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Uniqueness {
    pub(crate) window_ms: Option<u64>,
    pub(crate) reuse: bool,
    pub(crate) max_wait_ms: Option<u64>,
    pub(crate) revive: bool,
    pub(crate) undo_ms: Option<u64>,
}

impl Uniqueness {
    /// The options in the words of the scripts.
    pub(crate) fn words(self) -> impl Iterator<Item = String> {
        [
            self.window_ms.map(|ms| format!("window={ms}")),
            self.max_wait_ms.map(|ms| format!("max_wait={ms}")),
            self.reuse.then(|| "reuse".to_owned()),
            self.revive.then(|| "revive".to_owned()),
            self.undo_ms.map(|ms| format!("undo={ms}")),
        ]
        .into_iter()
        .flatten()
    }
}

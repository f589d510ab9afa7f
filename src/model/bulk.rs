//! How far a call in steps is.

/// How far a requeue or a purge in steps is: see [`BulkSteps`](crate::BulkSteps).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BulkProgress {
    /// How many messages all steps together have dealt with.
    pub done: u64,
    /// How many of the selected messages are left, as of the last step of each partition. `None`
    /// until each partition of the queue had its first step.
    pub left: Option<u64>,
    /// Why there is no further step; `None` if there is one.
    pub end: Option<BulkEnd>,
}

/// Why a requeue or a purge in steps has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BulkEnd {
    /// Nothing of what was selected is left.
    Complete,
    /// The queue was deleted since the first step, and may have been created again. The last step
    /// may have dealt with messages of the new queue.
    QueueGone,
}

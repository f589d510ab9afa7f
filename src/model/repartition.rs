//! How far a change of the number of partitions is.

/// How far a change of the number of partitions is: see
/// [`Repartition::on_progress`](crate::admin::Repartition::on_progress).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RepartitionProgress {
    /// What the change does now.
    pub phase: RepartitionPhase,
    /// How many messages this call has moved.
    pub moved: u64,
    /// About how many messages are still to be moved. Some of them may be handled where they are.
    pub left: u64,
    /// How many messages this call has moved per second.
    pub per_second: f64,
}

/// What a change of the number of partitions does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RepartitionPhase {
    /// It tells the partitions of the change, and makes the new ones.
    Opening,
    /// It moves messages. At the end it waits until what is leased or due soon was handled, and
    /// until the partitions have forgotten the calls from before.
    Moving,
    /// It removes the partitions that are no longer needed.
    Closing,
    /// It is complete.
    Complete,
}

impl RepartitionPhase {
    /// The name of the phase, such as `moving`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Moving => "moving",
            Self::Closing => "closing",
            Self::Complete => "complete",
        }
    }
}

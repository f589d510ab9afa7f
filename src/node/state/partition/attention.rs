//! Whether the node takes messages of a partition now.

use super::{NodePartition, Phase};

impl NodePartition {
    /// Called when something shows that the queue is no longer paused.
    pub(crate) fn resumed(&mut self) {
        self.seen.is_paused = false;
    }

    /// Whether the node attends the partition and is not leaving it.
    pub(crate) fn is_attending(&self) -> bool {
        matches!(self.phase, Phase::Attending)
    }

    /// Whether nodes may claim messages of the partition.
    pub(crate) fn delivers(&self) -> bool {
        self.is_attending() && (!self.seen.is_paused || self.consumer.must_ask(self.id))
    }

    /// Whether this node may claim messages of the partition.
    pub(crate) fn takes_messages(&self) -> bool {
        self.delivers() && !self.is_drained
    }

    /// Whether the node wants messages of the partition, if there are any.
    pub(crate) fn is_needed(&self) -> bool {
        !self.is_drained && self.consumer.is_needed()
    }

    /// Whether the node may use a wake-up token of the partition.
    pub(crate) fn takes_tokens(&self) -> bool {
        self.is_attending() && self.is_needed()
    }
}

//! What the queue knows of an id whose message has ended.

use crate::model::world::{Now, REPEAT_MS, World};
use crate::reply::{Reply, Text};

impl World {
    /// How and when the last message of this id ended, and the end of its window: the elements that
    /// `get` adds. No call of the model gives a message a window. Release 0.1 adds nothing.
    pub(super) fn outcome(&self, now: Now, id: &Text) -> Vec<Reply> {
        let cancelled = self.recent.get(id).map(|score| score.trunc() as u64);
        match cancelled {
            Some(score) if !self.is_frozen && self.was_cancelled(now, id) => {
                vec!["cancelled".into(), (score - REPEAT_MS).into(), 0_u64.into()]
            }
            _ => Vec::new(),
        }
    }
}

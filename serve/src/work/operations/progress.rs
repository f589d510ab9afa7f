//! The result of a step of an operation; and the steps of a dry run.

use dueq::admin::Picks;
use dueq::{MessageState, Queue};

use crate::wire::operations::Progress;
use crate::work::operations::selection::Selection;

/// The result of a step.
pub(super) struct Step {
    /// The number of messages that the step processed, for the pace.
    pub(super) messages: u64,
    pub(super) end: Option<End>,
}

/// Why no further step follows.
pub(super) enum End {
    Done,
    /// The queue was deleted meanwhile.
    QueueGone,
    /// The file of the cancelled messages has no room for the next one.
    NoRoom,
}

/// The result of a step that changes messages.
pub(super) struct Stepped {
    /// The total number of messages, if it is known.
    pub(super) of: Option<u64>,
    pub(super) end: Option<End>,
}

/// Counts the messages of a selection.
pub(super) struct Count {
    queue: Queue,
    selection: Selection,
    picks: Picks,
}

impl Count {
    pub(super) fn new(queue: &Queue, selection: &Selection) -> Self {
        Self {
            queue: queue.clone(),
            selection: selection.clone(),
            picks: selection.picks(queue),
        }
    }

    pub(super) fn state(&self) -> MessageState {
        self.selection.state
    }

    /// The time until which scheduled messages can be counted in one call.
    pub(super) fn counts_dues(&self) -> Option<u64> {
        let selection = &self.selection;
        let has_no_begin = selection.after_ms.is_none() && selection.is_by_time();
        let until_ms = selection.before_ms?;
        (selection.state == MessageState::Scheduled && has_no_begin).then_some(until_ms)
    }

    pub(super) async fn step(
        &mut self,
        limit: usize,
        update: impl Fn(&mut dyn FnMut(&mut Progress)),
    ) -> Result<Step, dueq::Error> {
        if let Some(until_ms) = self.counts_dues() {
            let counts = self.queue.dues(&[until_ms + 1]).await?.counts;
            let found = counts.first().copied().unwrap_or(0);
            update(&mut |progress| {
                progress.done = found;
                progress.of = Some(found);
            });
            return Ok(Step {
                messages: 1,
                end: Some(End::Done),
            });
        }
        let before = self.picks.looked();
        let picked = self.picks.read(limit).await?;
        let is_end = picked.is_none();
        let found = picked.map_or(0, |messages| messages.len() as u64);
        update(&mut |progress| {
            progress.done += found;
            if is_end {
                progress.of = Some(progress.done);
            }
        });
        Ok(Step {
            messages: self.picks.looked() - before,
            end: is_end.then_some(End::Done),
        })
    }
}

//! The result of a step of an operation; and the steps of a dry run.

use dueq::inspect::{MessageCursor, MessageEntry};
use dueq::{MessageState, Queue};

use crate::wire::operations::Progress;
use crate::work::operations::plan::{Group, Plan};

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
}

/// The result of a step that changes messages.
pub(super) struct Stepped {
    /// The total number of messages, if it is known.
    pub(super) of: Option<u64>,
    pub(super) end: Option<End>,
}

/// Counts the messages in one state whose time is not after a given time.
pub(super) struct Count {
    queue: Queue,
    state: MessageState,
    before_ms: u64,
    group: Group,
    cursor: Option<MessageCursor>,
}

impl Count {
    pub(super) fn new(queue: &Queue, plan: &Plan) -> Self {
        Self {
            queue: queue.clone(),
            state: plan.selected(),
            before_ms: plan.before_ms.unwrap_or(0),
            group: plan.group.clone(),
            cursor: plan.group.begin(),
        }
    }

    pub(super) fn state(&self) -> MessageState {
        self.state
    }

    pub(super) async fn step(
        &mut self,
        limit: usize,
        update: impl Fn(&mut dyn FnMut(&mut Progress)),
    ) -> Result<Step, dueq::Error> {
        if self.state == MessageState::Scheduled {
            // For scheduled messages Redis counts by due time in one call.
            let counts = self.queue.dues(&[self.before_ms + 1]).await?.counts;
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
        let page = self.queue.list(self.state, self.cursor.as_ref(), limit);
        let page = page.await?;
        let is_early = |message: &&MessageEntry| message.time_ms <= self.before_ms;
        let early: Vec<_> = page.messages.iter().filter(is_early).collect();
        // Dead messages are listed in the order of their times, ready ones are not.
        let is_past = self.state == MessageState::Dead && early.len() < page.messages.len();
        let found = early.iter().filter(|message| self.group.has(message));
        let found = found.count() as u64;
        let is_end = page.next.is_none() || is_past;
        update(&mut |progress| {
            progress.done += found;
            if is_end {
                progress.of = Some(progress.done);
            }
        });
        self.cursor = page.next;
        Ok(Step {
            messages: page.messages.len() as u64,
            end: is_end.then_some(End::Done),
        })
    }
}

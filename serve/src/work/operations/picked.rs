//! Requeues, removes or cancels messages that this server picks, one call for each.

use std::collections::VecDeque;
use std::sync::Arc;

use dueq::admin::Picks;
use dueq::outcomes::{CancelOutcome, RequeueOutcome};
use dueq::{Applied, Error, MessageState, Queue, StoredMessage};
use tokio::task::JoinSet;

use crate::wire::operations::{Kind, Skipped};
use crate::work::operations::kept::{Kept, LineRoom};
use crate::work::operations::plan::Plan;
use crate::work::operations::progress::{End, Stepped};
use crate::work::operations::selection::Selection;

/// The messages that one call reads.
const PAGE: usize = 100;

/// Reads the messages of a state, and changes those of a selection one by one.
///
/// Each message is read once more before its change. If another call requeues it between the two,
/// and it dies again at once, then this operation requeues it a second time.
pub(super) struct PickedSteps {
    change: Arc<Change>,
    picks: Picks,
    /// Whether all pages are read.
    is_read: bool,
    /// The selected messages that are read and not changed yet.
    found: VecDeque<Vec<u8>>,
    done: u64,
    /// Requeues whose reply was lost: all, and those of the last step.
    unknown: u64,
    lost: usize,
    skipped: Skipped,
}

/// What is done to each message.
struct Change {
    queue: Queue,
    kind: Kind,
    selection: Selection,
    /// The file with the messages that a cancel has cancelled.
    kept: Option<Arc<Kept>>,
}

/// What became of a message.
enum Did {
    Changed,
    /// Another call changed it before, so that it is no longer selected.
    Gone,
    Leased,
    /// The file has no room for it.
    NoRoom,
}

impl PickedSteps {
    pub(super) fn new(
        queue: &Queue,
        plan: &Plan,
        selection: &Selection,
        kept: Option<&Arc<Kept>>,
    ) -> Self {
        Self {
            picks: selection.picks(queue),
            change: Arc::new(Change {
                queue: queue.clone(),
                kind: plan.kind,
                selection: selection.clone(),
                kept: kept.cloned(),
            }),
            is_read: false,
            found: VecDeque::new(),
            done: 0,
            unknown: 0,
            lost: 0,
            skipped: Skipped::default(),
        }
    }

    pub(super) fn done(&self) -> u64 {
        self.done
    }

    /// What a cancel has left alone.
    pub(super) fn skipped(&self) -> Option<Skipped> {
        (self.change.kind == Kind::Cancel).then_some(self.skipped)
    }

    /// How many messages the last step may have changed without counting them. A repeated cancel gets
    /// the answer of the first, so nothing is lost.
    pub(super) fn lost(&self) -> usize {
        self.lost
    }

    /// The messages of the next step among those already read. Reads one page if there are none.
    pub(super) async fn peek(&mut self, count: usize) -> Result<Vec<Vec<u8>>, Error> {
        if self.found.is_empty() {
            self.read().await?;
        }
        Ok(self.found.iter().take(count).cloned().collect())
    }

    /// Changes messages that are already read, or reads a page. If a call did not reach Redis, a
    /// later step repeats it. If the reply of a requeue was lost, it is not repeated: the message
    /// may have died again.
    pub(super) async fn step(&mut self, limit: usize) -> Result<Stepped, Error> {
        let mut end = None;
        self.lost = 0;
        if self.found.is_empty() {
            self.read().await?;
        } else {
            end = self.act(limit).await?;
        }
        let is_enough = self.left() == 0;
        if is_enough || self.is_read && self.found.is_empty() {
            end = Some(End::Done);
        }
        Ok(Stepped {
            of: matches!(end, Some(End::Done)).then_some(self.done),
            end,
        })
    }

    /// How many messages may still be changed.
    fn left(&self) -> u64 {
        let most = self.change.selection.limit.unwrap_or(u64::MAX);
        most.saturating_sub(self.done + self.unknown)
    }

    async fn read(&mut self) -> Result<(), Error> {
        match self.picks.read(PAGE).await? {
            Some(messages) => {
                let ids = messages.into_iter().map(|message| message.id);
                self.found.extend(ids);
            }
            None => self.is_read = true,
        }
        Ok(())
    }

    async fn act(&mut self, limit: usize) -> Result<Option<End>, Error> {
        // The calls run concurrently, so that they share batches.
        let mut calls = JoinSet::new();
        let most = usize::try_from(self.left()).unwrap_or(usize::MAX);
        let count = limit.min(self.found.len()).min(most);
        for id in self.found.drain(..count) {
            let change = Arc::clone(&self.change);
            calls.spawn(async move {
                let did = change.make(&id).await;
                (id, did)
            });
        }
        let (mut failed, mut end): (Option<Error>, _) = (None, None);
        while let Some(ended) = calls.join_next().await {
            let (id, did) = match ended {
                Ok(ended) => ended,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            };
            match did {
                Ok(Did::Changed) => self.done += 1,
                Ok(Did::Gone) => self.skipped.absent += 1,
                Ok(Did::Leased) => self.skipped.leased += 1,
                Ok(Did::NoRoom) => {
                    self.found.push_back(id);
                    end = Some(End::NoRoom);
                }
                Err(error) => {
                    let is_unknown = error.was_applied() == Applied::Unknown;
                    if is_unknown && self.change.kind == Kind::Requeue {
                        self.unknown += 1;
                        self.lost += 1;
                    } else {
                        self.found.push_back(id);
                    }
                    if is_unknown || failed.is_none() {
                        failed = Some(error);
                    }
                }
            }
        }
        failed.map_or(Ok(end), Err)
    }
}

impl Change {
    /// Changes a message that is still selected.
    async fn make(&self, id: &[u8]) -> Result<Did, Error> {
        let Some(stored) = self.queue.get_up_to(id, 0).await? else {
            return Ok(Did::Gone);
        };
        if stored.state == MessageState::Leased {
            return Ok(Did::Leased);
        }
        if !self.selects(&stored) {
            return Ok(Did::Gone);
        }
        match (self.kind, &self.kept) {
            (Kind::Requeue, _) => Ok(match self.queue.requeue(id).await? {
                RequeueOutcome::Requeued => Did::Changed,
                _ => Did::Gone,
            }),
            (_, Some(kept)) => {
                let Some(room) = kept.room_for(stored.payload_bytes) else {
                    return Ok(Did::NoRoom);
                };
                self.keep_and_cancel(id, kept, room).await
            }
            (_, None) => self.cancel(id).await,
        }
    }

    /// Writes the message into the file if its cancel succeeds. A change between the read and the
    /// cancel is lost: a cancel cannot say which version of the message it means.
    async fn keep_and_cancel(&self, id: &[u8], kept: &Kept, room: LineRoom) -> Result<Did, Error> {
        let stored = self.queue.get(id).await?;
        let Some(stored) = stored.filter(|stored| self.selects(stored)) else {
            return Ok(Did::Gone);
        };
        let did = self.cancel(id).await?;
        if matches!(did, Did::Changed) {
            kept.write(id, stored, room);
        }
        Ok(did)
    }

    async fn cancel(&self, id: &[u8]) -> Result<Did, Error> {
        let outcome = match self.selection.state {
            MessageState::Dead => self.queue.cancel_dead(id).await?,
            _ => self.queue.cancel(id).await?,
        };
        Ok(match outcome {
            CancelOutcome::Cancelled => Did::Changed,
            CancelOutcome::Leased | CancelOutcome::Next => Did::Leased,
            _ => Did::Gone,
        })
    }

    /// Whether the message is selected. A scheduled one may be ready by now, and is selected still.
    fn selects(&self, stored: &StoredMessage) -> bool {
        let selection = &self.selection;
        let is_dead = |state| state == MessageState::Dead;
        is_dead(stored.state) == is_dead(selection.state)
            && selection.times().contains(&stored.time_ms)
            && selection.has(stored.failures, stored.crashes, &stored.error)
    }
}

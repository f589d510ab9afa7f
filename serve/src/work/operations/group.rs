//! Requeues the dead messages of one group: those that died with one error.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use dueq::inspect::MessageCursor;
use dueq::outcomes::RequeueOutcome;
use dueq::{Applied, Error, MessageState, Queue, StoredMessage};
use tokio::task::JoinSet;

use crate::work::operations::plan::{Group, Plan};
use crate::work::operations::progress::{End, Stepped};

/// The dead messages that one call reads.
const PAGE: usize = 100;

/// Reads the dead messages, the oldest first, and requeues those of a group one by one.
///
/// Each message is read once more before its requeue. If another call requeues it between the two,
/// and it dies again at once, then this operation requeues it a second time.
pub(super) struct GroupSteps {
    queue: Queue,
    group: Group,
    before_ms: u64,
    cursor: Option<MessageCursor>,
    /// Whether all pages are read.
    is_read: bool,
    /// The messages of the group that are read and not requeued yet.
    found: VecDeque<Vec<u8>>,
    done: u64,
}

impl GroupSteps {
    pub(super) fn new(queue: &Queue, plan: &Plan) -> Self {
        Self {
            queue: queue.clone(),
            group: plan.group.clone(),
            before_ms: plan.before_ms.unwrap_or(0),
            cursor: plan.group.begin(),
            is_read: false,
            found: VecDeque::new(),
            done: 0,
        }
    }

    /// The times of death that the operation selects.
    fn died(&self) -> RangeInclusive<u64> {
        self.group.after_ms.unwrap_or(0)..=self.before_ms
    }

    pub(super) fn done(&self) -> u64 {
        self.done
    }

    /// The messages of the next step among those already read. Reads one page if there are none.
    pub(super) async fn peek(&mut self, count: usize) -> Result<Vec<Vec<u8>>, Error> {
        if self.found.is_empty() {
            self.read().await?;
        }
        Ok(self.found.iter().take(count).cloned().collect())
    }

    /// Requeues messages that are already read, or reads a page. If a call did not reach Redis, a
    /// later step repeats it. If its reply was lost, it is not repeated: the message may have died
    /// again.
    pub(super) async fn step(&mut self, limit: usize) -> Result<Stepped, Error> {
        if self.found.is_empty() {
            self.read().await?;
        } else {
            self.requeue(limit).await?;
        }
        let is_end = self.is_read && self.found.is_empty();
        Ok(Stepped {
            of: is_end.then_some(self.done),
            end: is_end.then_some(End::Done),
        })
    }

    async fn read(&mut self) -> Result<(), Error> {
        if self.is_read {
            return Ok(());
        }
        let page = self
            .queue
            .list(MessageState::Dead, self.cursor.as_ref(), PAGE);
        let page = page.await?;
        let last = page.messages.last();
        self.is_read =
            page.next.is_none() || last.is_some_and(|last| last.time_ms > self.before_ms);
        self.cursor = page.next;
        for message in page.messages {
            if message.time_ms <= self.before_ms && self.group.has(&message) {
                self.found.push_back(message.id.to_vec());
            }
        }
        Ok(())
    }

    async fn requeue(&mut self, limit: usize) -> Result<(), Error> {
        // The calls run concurrently, so that they share batches.
        let mut calls = JoinSet::new();
        let (count, died) = (limit.min(self.found.len()), self.died());
        for id in self.found.drain(..count) {
            let (queue, died) = (self.queue.clone(), died.clone());
            calls.spawn(async move {
                let outcome = requeue(&queue, &id, died).await;
                (id, outcome)
            });
        }
        let mut failed: Option<Error> = None;
        while let Some(ended) = calls.join_next().await {
            let (id, outcome) = match ended {
                Ok(ended) => ended,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            };
            match outcome {
                Ok(is_done) => self.done += u64::from(is_done),
                Err(error) => {
                    let is_unknown = error.was_applied() == Applied::Unknown;
                    if !is_unknown {
                        self.found.push_back(id);
                    }
                    if is_unknown || failed.is_none() {
                        failed = Some(error);
                    }
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Requeues a message that is still dead and died within these times. False if another call was
/// faster.
async fn requeue(queue: &Queue, id: &[u8], died: RangeInclusive<u64>) -> Result<bool, Error> {
    let stored = queue.get_up_to(id, 0).await?;
    let is_dead = |stored: &StoredMessage| {
        stored.state == MessageState::Dead && died.contains(&stored.time_ms)
    };
    Ok(
        stored.as_ref().is_some_and(is_dead)
            && queue.requeue(id).await? == RequeueOutcome::Requeued,
    )
}

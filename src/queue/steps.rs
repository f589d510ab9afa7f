//! Requeues and purges in steps, at the caller's pace.

mod part;
mod picks;

use std::fmt;
use std::sync::Arc;

use crate::error::Error;
use crate::model::codec::Codec;
use crate::model::outcomes::MessageState;
use crate::model::stats::{BulkEnd, BulkProgress};
use crate::protocol::counts::MAX_ITEMS;
use crate::protocol::results::inspect;
use crate::protocol::verbs::Verb;
use crate::queue::Queue;
use crate::queue::administer::refuse_leased;
use crate::router::stranded::Departures;
use crate::router::{Partitions, Router};
use crate::server::patience::Repeat;
pub(super) use part::Bulk;
use part::{Part, parts_of, text_of};
pub use picks::Picks;

/// A requeue or a purge of a queue in steps: each [`step`](BulkSteps::step) is one call, and the
/// caller sets the pace. [`Queue::requeue_steps`] and [`Queue::purge_steps`] make one.
///
/// The steps end even if messages die or are pushed meanwhile. Nothing runs between two steps, and
/// Redis stores nothing of them. To stop, drop this value. New steps with the same time continue
/// the work, also in another process.
pub struct BulkSteps {
    router: Arc<Router>,
    bulk: Bulk,
    from_ms: Option<u64>,
    until_ms: u64,
    known: Arc<Partitions>,
    parts: Vec<Part>,
    /// The index of the partition that the next step deals with.
    turn: usize,
    done: u64,
    is_gone: bool,
    /// Whether all partitions have ended, and no message moved between them meanwhile.
    is_complete: bool,
    /// What had left each partition before its first step.
    before: Option<Departures>,
}

impl<C: Codec> Queue<C> {
    /// Revives the messages that died at or before this time, in Unix milliseconds of the server,
    /// in steps. If the time is later than the first step, the time of the first step counts, so
    /// that a message that dies again stays dead.
    ///
    /// The steps revive what [`requeue_before`](Queue::requeue_before) would. This method makes no
    /// call.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// delivery.bury("the bank is closed").await?;
    /// let now_ms = orders.dues(&[]).await?.now_ms;
    /// let mut steps = orders.requeue_steps(now_ms);
    /// while steps.step(100).await?.end.is_none() {
    ///     tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    /// }
    /// assert_eq!(steps.done(), 1);
    /// # });
    /// ```
    pub fn requeue_steps(&self, unix_ms: u64) -> BulkSteps {
        BulkSteps::new(self.router(), Bulk::Requeue, unix_ms)
    }

    /// Removes the messages in one state, scheduled, ready or dead, whose time is at or before this
    /// one, in steps. The steps remove what [`purge_before`](Queue::purge_before) would. A
    /// partition is finished when no such message is left, or when as many are removed as there
    /// were at its first step.
    ///
    /// This method makes no call.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) for leased messages.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::{Due, MessageState};
    ///
    /// orders.push("rate it").due(Due::at_ms(2_000_000_000_000)).await?;
    /// let mut steps = orders.purge_steps(MessageState::Scheduled, 2_000_000_000_000)?;
    /// let progress = steps.step(100).await?;
    /// assert_eq!((progress.done, progress.left), (1, Some(0)));
    /// # });
    /// ```
    pub fn purge_steps(&self, state: MessageState, unix_ms: u64) -> Result<BulkSteps, Error> {
        refuse_leased(state)?;
        Ok(BulkSteps::new(self.router(), Bulk::Purge(state), unix_ms))
    }
}

impl BulkSteps {
    fn new(router: &Arc<Router>, bulk: Bulk, until_ms: u64) -> Self {
        let known = router.current();
        Self {
            router: Arc::clone(router),
            bulk,
            from_ms: None,
            until_ms,
            parts: parts_of(&known, until_ms),
            known,
            turn: 0,
            done: 0,
            is_gone: false,
            is_complete: false,
            before: None,
        }
    }

    /// Limits a requeue to messages that died at or after this time, in Unix milliseconds of the
    /// server.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) for messages that are not dead.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// let before_ms = delivery.due_ms() - 1;
    /// delivery.bury("the bank is closed").await?;
    /// let mut steps = orders.requeue_steps(u64::MAX).since(before_ms + 60_000)?;
    /// assert_eq!(steps.step(100).await?.done, 0);
    /// let mut steps = orders.requeue_steps(u64::MAX).since(before_ms)?;
    /// assert_eq!(steps.step(100).await?.done, 1);
    /// # });
    /// ```
    pub fn since(mut self, unix_ms: u64) -> Result<Self, Error> {
        if self.bulk.state() != MessageState::Dead {
            let reason = "only the times at which messages died can have a beginning";
            return Err(Error::invalid(reason));
        }
        self.from_ms = Some(unix_ms);
        Ok(self)
    }

    /// Deals with up to `limit` messages (1 to 1,000) in one call, which takes Redis about 10 µs a
    /// message. The partitions of a queue take turns, the home first. After the end it makes no
    /// call.
    ///
    /// Each step except the first of a partition first checks that the queue has not been deleted.
    /// If the queue was deleted, the step changes nothing and is the last one. One gap remains: if
    /// the queue is deleted and created again between that read and the call, the step takes up to
    /// `limit` messages that are selected, and is the last one.
    ///
    /// # Errors
    /// After an error, a further step continues with what is left. If the reply was lost
    /// ([`Applied::Unknown`](crate::Applied::Unknown)), up to `limit` messages were dealt with but
    /// are not counted in [`done`](BulkSteps::done). A dropped future has the same effect as a lost
    /// reply.
    pub async fn step(&mut self, limit: usize) -> Result<BulkProgress, Error> {
        if !(1..=MAX_ITEMS).contains(&limit) {
            return Err(Error::invalid(format!(
                "a step of {limit} messages: a step has 1 to {MAX_ITEMS}"
            )));
        }
        if self.before.is_none() {
            self.before = Some(self.router.departures().await?);
        }
        if self.next().is_none() && !self.is_gone && !self.is_complete {
            self.look_again().await?;
        }
        let Some(index) = self.next() else {
            return Ok(self.progress());
        };
        if !self.parts[index].is_same().await? {
            self.vanished(index).await?;
            return Ok(self.progress());
        }
        let part = &mut self.parts[index];
        let times = (self.from_ms, Some(part.until_ms));
        let step = self
            .bulk
            .step(&part.partition, limit, times, part.passed)
            .await?;
        self.turn = index + 1;
        self.done += step.done;
        if !part.incarnation.is_empty() && part.incarnation != step.incarnation {
            self.vanished(index).await?;
            return Ok(self.progress());
        }
        part.took(&step, self.bulk);
        if index == 0 {
            // The home's reply has the epoch of the map.
            let newest = self.router.confirm(&self.known, step.epoch).await;
            let newest = newest.map_err(|error| {
                self.parts[0].has_ended = false; // asked again: it may know more partitions
                error.of_read()
            })?;
            if !Arc::ptr_eq(&newest, &self.known) {
                self.parts.truncate(1);
                let others = parts_of(&newest, self.until_ms).into_iter().skip(1);
                self.parts.extend(others);
                self.known = newest;
            }
        }
        if self.next().is_none() {
            self.look_again().await?;
        }
        Ok(self.progress())
    }

    /// Called when all partitions have ended: begins anew if messages moved between partitions
    /// meanwhile, as some may have been missed.
    async fn look_again(&mut self) -> Result<(), Error> {
        let now = self.router.departures().await?;
        let before = self.before.replace(now);
        let is_still = |now: &Departures| before.is_some_and(|before| now.are_those_of(&before));
        self.is_complete = self.before.as_ref().is_some_and(is_still);
        if !self.is_complete {
            // What a requeue has not taken so far died before this time.
            let times = self.parts.iter().map(|part| part.until_ms);
            let until_ms = times.min().unwrap_or(self.until_ms);
            self.known = self.router.current();
            self.parts = parts_of(&self.known, until_ms);
        }
        Ok(())
    }

    /// Called when a partition has lost the incarnation of its first step: the queue was deleted,
    /// unless a change of the partitions has removed this one.
    async fn vanished(&mut self, index: usize) -> Result<(), Error> {
        let tag = self.parts[index].partition.tag();
        let now = self.router.refresh(&self.router.current()).await?;
        self.turn = index + 1;
        let is_deleted = now.home().stored_map().await?.incarnation.is_none();
        self.is_gone = is_deleted || now.of_tag(tag).is_some();
        self.parts[index].has_ended = true;
        Ok(())
    }

    /// Reads, in one call, the ids that the next step with this `limit` would deal with. Other
    /// calls can change the messages before that step. Empty at the end, and if the next partition
    /// has none.
    ///
    /// It changes nothing, so it can be repeated and dropped.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if `limit` is not 1 to 1,000;
    /// else those of [`list`](Queue::list).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// delivery.bury("the bank is closed").await?;
    /// let steps = orders.requeue_steps(u64::MAX);
    /// assert_eq!(steps.peek(10).await?, [b"order:42"]);
    /// # });
    /// ```
    pub async fn peek(&self, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
        if !(1..=MAX_ITEMS).contains(&limit) {
            return Err(Error::invalid(format!(
                "{limit} ids: a call returns 1 to {MAX_ITEMS}"
            )));
        }
        let Some(index) = self.next() else {
            return Ok(Vec::new());
        };
        let part = &self.parts[index];
        let state = self.bulk.state();
        let (limit, from) = (limit.to_string(), text_of(self.from_ms));
        let cursor = self
            .from_ms
            .map_or_else(String::new, |_| format!("{from}:"));
        let args = [state.as_str(), &cursor, &limit].map(str::as_bytes);
        let called = part.partition.call(Verb::Peek, &args, Repeat::Harmless);
        let page = inspect::page(&mut called.await?.body)?.page;
        let selected = page.messages.into_iter();
        let selected = selected.filter(|message| message.time_ms <= part.until_ms);
        Ok(selected.map(|message| message.id).collect())
    }

    /// How many messages all steps together have dealt with.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// The index of the partition that the next step deals with; `None` at the end.
    fn next(&self) -> Option<usize> {
        if self.is_gone {
            return None;
        }
        let count = self.parts.len();
        let mut indexes = (0..count).map(|step| (self.turn + step) % count);
        indexes.find(|index| !self.parts[*index].has_ended)
    }

    fn progress(&self) -> BulkProgress {
        let left: Option<Vec<u64>> = self.parts.iter().map(|part| part.left).collect();
        BulkProgress {
            done: self.done,
            left: left.map(|left| left.iter().sum()),
            end: match self.next() {
                Some(_) => None,
                None if self.is_gone => Some(BulkEnd::QueueGone),
                None if self.is_complete => Some(BulkEnd::Complete),
                None => None,
            },
        }
    }
}

impl fmt::Debug for BulkSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BulkSteps")
            .field("queue", &self.router.queue_name())
            .field("bulk", &self.bulk)
            .field("from_ms", &self.from_ms)
            .field("until_ms", &self.until_ms)
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

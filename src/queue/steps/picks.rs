//! The messages of a state that a caller picks, read in bounded steps.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::error::Error;
use crate::model::codec::{Codec, RawBytes};
use crate::model::outcomes::MessageState;
use crate::model::stored::{MessageCursor, MessageEntry};
use crate::queue::Queue;

/// How often a message may be read: again after each page, if all are of one millisecond.
const MAX_AGAIN: u64 = 10;

/// Reads the messages of a queue in one state, and hands out those that the caller picks.
/// [`Queue::picks`] makes one.
///
/// The reads end even if messages are pushed or change meanwhile: they reach to the latest time that
/// a message of the state had at the first read, and the number of reads is bounded. A message that
/// enters or leaves the state meanwhile may be missing, and one may be read twice. So look at a
/// message again before you change it.
pub struct Picks {
    queue: Queue,
    state: MessageState,
    times: RangeInclusive<u64>,
    is_picked: Arc<dyn Fn(&MessageEntry) -> bool + Send + Sync>,
    cursor: Option<MessageCursor>,
    /// How many messages may still be read, or read again; `None` before the first read.
    left: Option<u64>,
    looked: u64,
}

impl<C: Codec> Queue<C> {
    /// The messages in one state whose time is within these, in Unix milliseconds, and that
    /// `is_picked` picks. See [`MessageEntry::time_ms`] for the time of each state. They are read
    /// in the order of their times; ready ones from the last one back. This method makes no call.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// use dueq::MessageState;
    ///
    /// delivery.bury("the bank is closed").await?;
    /// let mut closed = orders.picks(MessageState::Dead, 0..=u64::MAX, |message| {
    ///     message.error.contains("closed")
    /// });
    /// let mut count = 0;
    /// while let Some(messages) = closed.read(100).await? {
    ///     for message in messages {
    ///         orders.requeue(&message.id).await?;
    ///         count += 1;
    ///     }
    /// }
    /// assert_eq!((count, closed.looked()), (1, 1));
    /// # });
    /// ```
    pub fn picks(
        &self,
        state: MessageState,
        times: RangeInclusive<u64>,
        is_picked: impl Fn(&MessageEntry) -> bool + Send + Sync + 'static,
    ) -> Picks {
        let bound = match state {
            // A removal shifts the places of the ready messages behind it, so the reads go back.
            MessageState::Ready => None,
            _ => Some(*times.start()).filter(|ms| *ms > 0),
        };
        Picks {
            queue: Queue {
                router: Arc::clone(self.router()),
                durability: self.durability,
                codec: RawBytes,
            },
            state,
            times,
            is_picked: Arc::new(is_picked),
            cursor: bound.map(MessageCursor::at_ms),
            left: None,
            looked: 0,
        }
    }
}

impl Picks {
    /// Looks at up to `limit` (1 to 1,000) further messages in one call, and returns the picked ones
    /// of them: perhaps none. `None` at the end. May be called again after an error.
    ///
    /// # Errors
    /// As [`Queue::list`].
    pub async fn read(&mut self, limit: usize) -> Result<Option<Vec<MessageEntry>>, Error> {
        let left = match self.left {
            Some(left) => left,
            None => self.begin().await?,
        };
        self.left = Some(left);
        if left == 0 {
            return Ok(None);
        }
        let cursor = self.cursor.as_ref();
        let page = match self.state {
            MessageState::Ready => self.queue.list_newest(self.state, cursor, limit).await?,
            _ => self.queue.list(self.state, cursor, limit).await?,
        };
        let count = page.messages.len() as u64;
        self.looked += count;
        let last = page.messages.last();
        let is_past = last.is_some_and(|last| last.time_ms > *self.times.end());
        let is_end = page.next.is_none() || is_past && self.state != MessageState::Ready;
        // A read without a message counts too, so that the reads end.
        self.left = Some(if is_end {
            0
        } else {
            left.saturating_sub(count.max(1))
        });
        self.cursor = page.next;
        let mut picked = page.messages;
        picked.retain(|message| self.times.contains(&message.time_ms) && (self.is_picked)(message));
        Ok(Some(picked))
    }

    /// How many messages were looked at.
    pub fn looked(&self) -> u64 {
        self.looked
    }

    /// Bounds the reads. Returns how many messages they may return.
    async fn begin(&mut self) -> Result<u64, Error> {
        let last = self.queue.list_newest(self.state, None, 1).await?;
        if let Some(last) = last.messages.first()
            && self.state != MessageState::Ready
        {
            let end = (*self.times.end()).min(last.time_ms);
            self.times = *self.times.start()..=end;
        }
        let stats = self.queue.stats().await?;
        let count = match self.state {
            MessageState::Scheduled => stats.scheduled,
            MessageState::Ready => stats.ready,
            MessageState::Leased => stats.leased,
            MessageState::Dead => stats.dead,
        };
        // After a page whose last message was removed, the messages of its millisecond come again.
        Ok(MAX_AGAIN * count)
    }
}

impl fmt::Debug for Picks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Picks")
            .field("queue", &self.queue.name())
            .field("state", &self.state)
            .field("times", &self.times)
            .field("looked", &self.looked)
            .finish_non_exhaustive()
    }
}

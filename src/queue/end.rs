//! How a message ended, and waiting for it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::Error;
use crate::model::codec::Codec;
use crate::model::life::LifeEvent;
use crate::model::outcomes::MessageState;
use crate::model::outcomes::{MessageEnd, WaitOutcome};
use crate::partition::Partition;
use crate::protocol::limits;
use crate::protocol::replies::Reply;
use crate::protocol::results::inspect;
use crate::protocol::verbs::Verb;
use crate::queue::Queue;
use crate::router::{Routing, Step};
use crate::server::patience::Repeat;

/// The first pause of a wait. Each further pause is 1.5 times as long, up to the longest pause.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl<C: Codec> Queue<C> {
    /// Returns how the message of this id ended, if the queue remembers it. `None` if the message
    /// is still in the queue, even dead, or if the queue does not remember the id.
    ///
    /// The queue remembers an ack and an expiry for the rest of the push's
    /// [`window`](crate::Message::window), and a cancel or purge for 12 s. An end tells how a
    /// message ended, not what its handler computed: let the handler store a result under the id in
    /// your database.
    ///
    /// The call only reads and is cancel safe. One call of O(log n).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the id is not valid; any
    /// other if Redis was away for 10 s.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::inspect::EndKind;
    /// use std::time::Duration;
    ///
    /// let day = Duration::from_secs(86_400);
    /// orders.push("rate it").id("order:42").window(day).await?;
    /// for delivery in orders.claim(1, Duration::from_secs(30)).await? {
    ///     delivery.ack().await?;
    /// }
    /// let end = orders.end_of("order:42").await?;
    /// assert_eq!(end.map(|end| end.kind), Some(EndKind::Finished));
    /// # });
    /// ```
    pub async fn end_of(&self, id: impl AsRef<[u8]>) -> Result<Option<MessageEnd>, Error> {
        let mut reply = self.look_up(id.as_ref()).await?;
        match inspect::stored(&mut reply.body)? {
            Some(_) => Ok(None),
            None => inspect::end(&mut reply.body),
        }
    }

    /// Returns what happened to the message of this id, the latest last: its last 20 events, whether
    /// it is in the queue or has ended. Empty if the queue does not keep lives, or not any more:
    /// [`QueueLimits::keep_life_for`](crate::QueueLimits::keep_life_for).
    ///
    /// The call only reads and is cancel safe. One call of O(log n).
    ///
    /// # Errors
    /// As [`end_of`](Queue::end_of).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::QueueLimits;
    /// use std::time::Duration;
    ///
    /// orders.configure(QueueLimits::new().keep_life_for(Duration::from_secs(3_600))).await?;
    /// orders.push("rate it").id("order:42").await?;
    /// for delivery in orders.claim(1, Duration::from_secs(30)).await? {
    ///     delivery.ack().await?;
    /// }
    /// let life = orders.life_of("order:42").await?;
    /// let what: Vec<&str> = life.iter().map(|event| event.what.as_str()).collect();
    /// assert_eq!(what, ["push", "ack"]);
    /// # });
    /// ```
    pub async fn life_of(&self, id: impl AsRef<[u8]>) -> Result<Vec<LifeEvent>, Error> {
        let mut reply = self.look_up(id.as_ref()).await?;
        match inspect::stored(&mut reply.body)? {
            Some(stored) => Ok(stored.life),
            None => {
                inspect::end(&mut reply.body)?;
                inspect::life(&mut reply.body)
            }
        }
    }

    /// Waits until the message of this id has ended or is dead, for `timeout` at most.
    ///
    /// It reads the message at once, and then after pauses that grow from 0.1 s to 1 s: so it
    /// returns 1 s after the end at the latest. After an ack without a
    /// [`window`](crate::Message::window) it returns [`WaitOutcome::Absent`]. A message that comes
    /// back under the id within a pause, such as by [`OnConflict::Next`](crate::OnConflict::Next),
    /// continues the wait.
    ///
    /// The call makes at least one read, even if the timeout is 0. Reads repeat for up to 10 s
    /// while Redis is away, and the wait goes on after them until its timeout.
    ///
    /// The call only reads and is cancel safe. Each wait makes its own calls. To wait for many ids
    /// at once, it is cheaper if their handler pushes a message to another queue.
    ///
    /// # Errors
    /// As [`end_of`](Queue::end_of). An error that is
    /// [retryable](crate::Error::is_retryable) is returned only when the time is up.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::inspect::EndKind;
    /// use dueq::outcomes::{CancelOutcome, WaitOutcome};
    /// use std::time::Duration;
    ///
    /// let minute = Duration::from_secs(60);
    /// orders.push("rate it").id("order:42").delay(minute).await?;
    /// let waiter = orders.clone();
    /// let wait = tokio::spawn(async move { waiter.wait("order:42", minute).await });
    /// assert_eq!(orders.cancel("order:42").await?, CancelOutcome::Cancelled);
    /// let WaitOutcome::Ended(end) = wait.await?? else { panic!("the message has ended") };
    /// assert_eq!(end.kind, EndKind::Cancelled);
    /// # });
    /// ```
    pub async fn wait(
        &self,
        id: impl AsRef<[u8]>,
        timeout: Duration,
    ) -> Result<WaitOutcome, Error> {
        // A timeout beyond the range of the clock, such as Duration::MAX, is a century.
        let century = Duration::from_millis(crate::model::due::MAX_DELAY_MS);
        let end = Instant::now() + timeout.min(century);
        let mut pause = FIRST_PAUSE;
        loop {
            let waited = self.waited(id.as_ref()).await;
            let is_over = match &waited {
                Ok(WaitOutcome::TimedOut(_)) => false,
                Ok(_) => true,
                Err(error) => !error.is_retryable(),
            };
            let now = Instant::now();
            if is_over || now >= end {
                return waited;
            }
            tokio::time::sleep_until(end.min(now + pause)).await;
            pause = LONGEST_PAUSE.min(pause * 3 / 2);
        }
    }

    /// What a wait returns after its last read.
    async fn waited(&self, id: &[u8]) -> Result<WaitOutcome, Error> {
        let mut reply = self.look_up(id).await?;
        Ok(match inspect::stored(&mut reply.body)? {
            Some(stored) if stored.state == MessageState::Dead => WaitOutcome::Dead,
            Some(stored) => WaitOutcome::TimedOut(stored.state),
            None => match inspect::end(&mut reply.body)? {
                Some(end) => WaitOutcome::Ended(end),
                None => WaitOutcome::Absent,
            },
        })
    }

    /// The reply of the script `get`.
    pub(super) async fn look_up(&self, id: &[u8]) -> Result<Reply, Error> {
        self.look_up_with(id, &[]).await
    }

    /// The reply of the script `get`, called with further arguments.
    pub(super) async fn look_up_with(&self, id: &[u8], more: &[&[u8]]) -> Result<Reply, Error> {
        limits::check_id(id)?;
        let args = [&[id], more].concat();
        let mut routing = Routing::new(&self.router);
        loop {
            let partitions = routing.partitions().await?;
            let old = partitions.of_id(id, &Step::<()>::Old);
            let new = partitions.of_id(id, &Step::<()>::New);
            let (mut partition, mut read) = (old, self.get_at(old, &args).await);
            if !Arc::ptr_eq(old, new)
                && let Ok(first) = &read
                && inspect::is_absent(&first.body)
            {
                let second = self.get_at(new, &args).await;
                // Only the old partition may remember how the message ended.
                let is_nowhere = |second: &Reply| inspect::is_absent(&second.body);
                if !inspect::has_end(&first.body) || !second.as_ref().is_ok_and(is_nowhere) {
                    (partition, read) = (new, second);
                }
            }
            match read {
                Err(refusal) if refusal.is_remapped() => {
                    routing.refused(&[(partition, &refusal)]).await?;
                }
                Err(error) if error.code() == Some("MOVING") => routing.moving().await?,
                read => return read,
            }
        }
    }

    async fn get_at(&self, partition: &Partition, args: &[&[u8]]) -> Result<Reply, Error> {
        let call = partition.call_fenced(Verb::Get, args, Repeat::Harmless);
        call.await
    }
}

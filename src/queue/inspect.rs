//! Reads of a queue (one message, pages of messages, counts), and setting its limits.

use crate::error::Error;
use crate::model::codec::Codec;
use crate::model::limits::QueueLimits;
use crate::model::outcomes::MessageState;
use crate::model::reached::PartialRead;
use crate::model::stats::QueueStats;
use crate::model::stored::{MessageCursor, MessagePage, StoredMessage};
use crate::protocol::counts::MAX_ITEMS;
use crate::protocol::limits::MAX_PAYLOAD_BYTES;
use crate::protocol::replies::Reply;
use crate::protocol::results::inspect;
use crate::protocol::verbs::Verb;
use crate::queue::list::Listing;
use crate::queue::{Queue, list};
use crate::server::patience::Repeat;

impl<C: Codec> Queue<C> {
    /// Returns the message with this id, in any state; `None` if there is none. For a message that
    /// has ended see [`end_of`](Queue::end_of).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// orders.push("rate it").id("order:42").await?;
    /// if let Some(stored) = orders.get("order:42").await? {
    ///     println!("{}, failed {} times: {}", stored.state, stored.failures, stored.error);
    /// }
    /// # assert!(orders.get("order:42").await?.is_some());
    /// # });
    /// ```
    pub async fn get(&self, id: impl AsRef<[u8]>) -> Result<Option<StoredMessage>, Error> {
        let mut reply = self.look_up(id.as_ref()).await?;
        inspect::stored(&mut reply.body)
    }

    /// Returns a message as [`get`](Queue::get) does, with at most `payload_bytes` of its payload:
    /// for programs that show messages, whose payloads may have 16 MiB.
    /// [`StoredMessage::payload_bytes`] is the length of the whole payload.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// orders.push("rate it").id("order:42").await?;
    /// let stored = orders.get_up_to("order:42", 4).await?.unwrap();
    /// assert_eq!((stored.payload, stored.payload_bytes), (b"rate".to_vec(), 7));
    /// # });
    /// ```
    pub async fn get_up_to(
        &self,
        id: impl AsRef<[u8]>,
        payload_bytes: usize,
    ) -> Result<Option<StoredMessage>, Error> {
        let most = payload_bytes.min(MAX_PAYLOAD_BYTES).to_string();
        let mut reply = self.look_up_with(id.as_ref(), &[most.as_bytes()]).await?;
        inspect::stored(&mut reply.body)
    }

    /// Returns a page of up to `limit` (1 to 1,000) messages in one state, ordered by their times.
    /// Without a cursor it is the first page. [`MessageCursor::at_ms`] makes a cursor from a time.
    /// A message that enters or leaves the state between two pages may be missing or appear twice.
    /// The messages of several partitions are merged by their times.
    ///
    /// Pages contain no payloads: [`get`](Queue::get) returns the payload of one message.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::MessageState;
    ///
    /// let mut cursor = None;
    /// loop {
    ///     let page = orders.list(MessageState::Dead, cursor.as_ref(), 100).await?;
    ///     for message in page.messages {
    ///         println!("{}: {}", String::from_utf8_lossy(&message.id), message.error);
    ///     }
    ///     cursor = page.next;
    ///     if cursor.is_none() {
    ///         break;
    ///     }
    /// }
    /// # });
    /// ```
    pub async fn list(
        &self,
        state: MessageState,
        cursor: Option<&MessageCursor>,
        limit: usize,
    ) -> Result<MessagePage, Error> {
        self.page(state, false, cursor, limit).await
    }

    /// Returns a page as [`list`](Queue::list) does, but with the latest times first. Use the
    /// cursor of a page only with the method that returned it. A cursor of [`MessageCursor::at_ms`]
    /// works with both.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// use dueq::MessageState;
    ///
    /// delivery.bury("the bank is closed").await?;
    /// let last_died = orders.list_newest(MessageState::Dead, None, 10).await?;
    /// assert_eq!(last_died.messages[0].error, "the bank is closed");
    /// # });
    /// ```
    pub async fn list_newest(
        &self,
        state: MessageState,
        cursor: Option<&MessageCursor>,
        limit: usize,
    ) -> Result<MessagePage, Error> {
        self.page(state, true, cursor, limit).await
    }

    async fn page(
        &self,
        state: MessageState,
        newest: bool,
        cursor: Option<&MessageCursor>,
        limit: usize,
    ) -> Result<MessagePage, Error> {
        if !(1..=MAX_ITEMS).contains(&limit) {
            return Err(Error::invalid(format!(
                "a page of {limit} messages: a page has 1 to {MAX_ITEMS}"
            )));
        }
        let listing = Listing {
            state,
            newest,
            limit,
        };
        list::page(&self.router, listing, cursor).await
    }

    /// Counts of what the queue holds and has done, over all its partitions. If one of them cannot
    /// be reached for 10 s, the error names it: [`stats_reached`](Queue::stats_reached) returns what
    /// the others hold.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// orders.push("rate it").delay(std::time::Duration::from_secs(60)).await?;
    /// let stats = orders.stats().await?;
    /// assert_eq!((stats.scheduled, stats.dead, stats.pushed), (1, 0, 1));
    /// # });
    /// ```
    pub async fn stats(&self) -> Result<QueueStats, Error> {
        self.stats_of(self.read_all(Verb::Stats, &[]).await?)
    }

    /// Counts as [`stats`](Queue::stats) does, for monitoring: within 2 s it returns the counts of
    /// the partitions that reply, and names the others.
    ///
    /// # Errors
    /// If no partition can be read.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// let stats = orders.stats_reached().await?;
    /// match stats.gap() {
    ///     None => println!("{} ms overdue", stats.value.overdue_ms),
    ///     Some(gap) => println!("at least {} ms overdue; {gap}", stats.value.overdue_ms),
    /// }
    /// # assert!(stats.unread.is_empty());
    /// # });
    /// ```
    pub async fn stats_reached(&self) -> Result<PartialRead<QueueStats>, Error> {
        let reached = self.reach_all(Verb::Stats, &[]).await?;
        reached.map(|replies| self.stats_of(replies))
    }

    /// Sets limits of the queue. Creates the queue if it does not exist. Each of P partitions gets
    /// `max_messages / P`, `keep_dead / P` and `max_remembered / P`, rounded up. It gets the starts
    /// of the rate and `max_leased` divided by P, rounded down, and the burst divided by P, but at
    /// least 1.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if a limit is out of its range, if
    /// the rate's starts or `max_leased` are fewer than the partitions, or if no limit is given. Then
    /// nothing is changed.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::QueueLimits;
    ///
    /// orders.configure(QueueLimits::new().max_attempts(5).max_messages(Some(1_000_000))).await?;
    /// assert_eq!(orders.stats().await?.max_attempts, 5);
    /// # });
    /// ```
    pub async fn configure(&self, limits: QueueLimits) -> Result<(), Error> {
        let mut known = self.router.current();
        if limits.needs_partitions() {
            // Reads the newest map before the first write, because a limit may be refused for too
            // many partitions.
            known = self.router.refresh(&known).await?;
        }
        limits.of_partition(known.list().len())?;
        // If another process has just added too many partitions, the script refuses the call,
        // because an argument is missing.
        let args = |partitions| limits.of_partition(partitions).unwrap_or_default();
        self.call_all(Verb::Configure, args, Repeat::Harmless)
            .await
            .map(drop)
    }

    /// Adds up the stats of the partitions.
    fn stats_of(&self, replies: Vec<Reply>) -> Result<QueueStats, Error> {
        let mut stats: Option<QueueStats> = None;
        for mut reply in replies {
            let part = inspect::stats(&mut reply)?;
            match &mut stats {
                None => stats = Some(part),
                Some(stats) => stats.add(&part),
            }
        }
        let mut stats = stats.unwrap_or_default();
        // The replies come from the partitions of this map.
        let known = self.router.current();
        let changing = known.map().filter(|map| map.moves());
        stats.changing_to = changing.map_or(0, |map| map.new.len() as u64);
        Ok(stats)
    }
}

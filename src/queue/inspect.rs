//! Reading a queue: one message, pages of messages, counts; and setting its limits.

use crate::error::Error;
use crate::model::codec::Codec;
use crate::model::limits::Limits;
use crate::model::outcomes::State;
use crate::model::stats::Stats;
use crate::model::stored::{Cursor, Page, Stored};
use crate::protocol::limits::{self, MAX_ITEMS};
use crate::protocol::results::inspect;
use crate::protocol::verbs::Verb;
use crate::queue::Queue;
use crate::server::patience::Repeat;

impl<C: Codec> Queue<C> {
    /// The message with this id in any state; `None` if there is none.
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
    pub async fn get(&self, id: impl AsRef<[u8]>) -> Result<Option<Stored>, Error> {
        limits::check_id(id.as_ref())?;
        let mut reply = self
            .call(Verb::Get, &[id.as_ref()], Repeat::Harmless)
            .await?;
        inspect::stored(&mut reply.body)
    }

    /// A page of up to `limit` (1 to 1,000) messages in one state, ordered by their times. Without
    /// a cursor it is the first page. A message that enters or leaves the state between two pages
    /// may be missing or appear twice.
    ///
    /// Pages contain no payloads: [`get`](Queue::get) returns that of one id.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::State;
    ///
    /// let mut cursor = None;
    /// loop {
    ///     let page = orders.list(State::Dead, cursor.as_ref(), 100).await?;
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
        state: State,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        if !(1..=MAX_ITEMS).contains(&limit) {
            return Err(Error::invalid(format!(
                "a page of {limit} messages: a page has 1 to {MAX_ITEMS}"
            )));
        }
        let cursor = cursor.map_or(&b""[..], |cursor| &cursor.0);
        let args = [
            state.as_str().as_bytes(),
            cursor,
            &limit.to_string().into_bytes(),
        ];
        let mut reply = self.call(Verb::Peek, &args, Repeat::Harmless).await?;
        inspect::page(&mut reply.body)
    }

    /// Counts of what the queue holds and has done.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// orders.push("rate it").delay(std::time::Duration::from_secs(60)).await?;
    /// let stats = orders.stats().await?;
    /// assert_eq!((stats.scheduled, stats.dead, stats.pushed), (1, 0, 1));
    /// # });
    /// ```
    pub async fn stats(&self) -> Result<Stats, Error> {
        let mut reply = self.call(Verb::Stats, &[], Repeat::Harmless).await?;
        inspect::stats(&mut reply)
    }

    /// Sets limits of the queue. Creates the queue if it does not exist.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if a limit is out of its range,
    /// or none is given. Then nothing is changed.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::Limits;
    ///
    /// orders.configure(Limits::new().max_attempts(5).max_messages(Some(1_000_000))).await?;
    /// assert_eq!(orders.stats().await?.max_attempts, 5);
    /// # });
    /// ```
    pub async fn configure(&self, limits: Limits) -> Result<(), Error> {
        let args: Vec<&[u8]> = limits
            .0
            .iter()
            .flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()])
            .collect();
        self.call(Verb::Configure, &args, Repeat::Harmless)
            .await
            .map(drop)
    }
}

//! Deletes a queue: by its name, or only if it has the incarnation that the caller has seen.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::model::codec::Codec;
use crate::model::outcomes::{DeleteOutcome, UnusedOutcome};
use crate::protocol::verbs::Verb;
use crate::queue::Queue;
use crate::server::patience::{Repeat, patiently};

/// The shortest time that [`Queue::unused`] accepts. The longest is 89 days, because the history
/// has 90 days of which the last is not over.
const LEAST_UNUSED: Duration = Duration::from_secs(3_600);
const MOST_UNUSED: Duration = Duration::from_secs(89 * 86_400);

impl<C: Codec> Queue<C> {
    /// Returns the incarnation of the queue: 16 hexadecimal digits that are different each time a
    /// queue of this name is created. `None` if there is no queue.
    ///
    /// Every role has the right to this call.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// assert_eq!(orders.incarnation().await?, None);
    /// orders.push("rate it").await?;
    /// let first = orders.incarnation().await?;
    /// orders.delete().await?;
    /// orders.push("rate it").await?;
    /// assert_ne!(orders.incarnation().await?, first);
    /// # });
    /// ```
    pub async fn incarnation(&self) -> Result<Option<String>, Error> {
        let home = self.router.own_home();
        let names = ["incarnation", "layout"];
        let read = patiently(|| home.control().fields(home.keys().meta(), names));
        let [incarnation, layout] = read.await?;
        Ok(incarnation.filter(|_| layout.is_some()))
    }

    /// Deletes the queue as [`delete`](Queue::delete) does, but only if it has this
    /// [`incarnation`](Queue::incarnation): a queue that was created after it stays. The comparison
    /// and the deletion are one step in Redis for each partition.
    ///
    /// If the reply is lost, the same call answers `Absent` if the first one took effect.
    ///
    /// # Errors
    /// The errors of [`delete`](Queue::delete).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::outcomes::DeleteOutcome;
    ///
    /// orders.push("rate it").await?;
    /// let incarnation = orders.incarnation().await?.unwrap();
    /// assert_eq!(orders.delete_incarnation("an older one").await?, DeleteOutcome::Changed);
    /// assert_eq!(orders.delete_incarnation(&incarnation).await?, DeleteOutcome::Deleted);
    /// assert_eq!(orders.delete_incarnation(&incarnation).await?, DeleteOutcome::Absent);
    /// # });
    /// ```
    pub async fn delete_incarnation(&self, incarnation: &str) -> Result<DeleteOutcome, Error> {
        let home = self.router.own_home();
        let header = home.call(Verb::Stats, &[], Repeat::Harmless).await;
        let header = header.map_err(Error::of_read)?.header;
        match header.incarnation {
            none if none.is_empty() => return Ok(DeleteOutcome::Absent),
            found if found != incarnation => return Ok(DeleteOutcome::Changed),
            _ => {}
        }
        let has_left = self.router.left_home().await?.is_some();
        let has_others = header.epoch.is_some() && !has_left;
        if has_others && !self.router.delete_others(Some(incarnation)).await? {
            return Ok(DeleteOutcome::Changed);
        }
        let deleted = home.control().delete_incarnation(home.keys(), incarnation);
        let deleted = deleted.await;
        if has_left {
            self.router.stay().await?;
        }
        if !has_others {
            return deleted;
        }
        let deleted = deleted.map_err(|error| error.after("the other partitions were deleted"))?;
        let read = self.router.refresh(&self.router.current()).await;
        read.map_err(|error| error.after("the queue was deleted"))?;
        Ok(deleted)
    }

    /// Finds out whether the queue is empty, and nothing was pushed, delivered or settled for this
    /// time. It changes nothing. See [`delete_unused`](Queue::delete_unused).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the time is shorter than an hour
    /// or longer than 89 days.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use std::time::Duration;
    /// use dueq::outcomes::{KeepReason, UnusedOutcome};
    ///
    /// orders.push("rate it").await?;
    /// let unused = orders.unused(Duration::from_secs(30 * 86_400)).await?;
    /// assert_eq!(unused, UnusedOutcome::Kept(KeepReason::Messages));
    /// # });
    /// ```
    pub async fn unused(&self, idle: Duration) -> Result<UnusedOutcome, Error> {
        self.look_for_use(idle, false).await
    }

    /// Deletes the queue if it is empty, and nothing was pushed, delivered or settled for this
    /// time: one step in Redis, so that no message is lost. The next push creates the queue again.
    ///
    /// A queue with schedules, several partitions, limits of its own, a pause or unfinished windows
    /// is kept, for a [`KeepReason`](crate::outcomes::KeepReason). So is a queue on which no worker
    /// has reported: the [history](Queue::history) says when it was used. The user needs the rights
    /// of an operator.
    ///
    /// # Errors
    /// The errors of [`unused`](Queue::unused); [`ErrorKind::Server`](crate::ErrorKind::Server) if one of
    /// its keys has a wrong type. Then nothing is deleted.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use std::time::Duration;
    /// use dueq::outcomes::UnusedOutcome;
    ///
    /// let unused = orders.delete_unused(Duration::from_secs(30 * 86_400)).await?;
    /// assert_eq!(unused, UnusedOutcome::Absent);
    /// # });
    /// ```
    pub async fn delete_unused(&self, idle: Duration) -> Result<UnusedOutcome, Error> {
        self.look_for_use(idle, true).await
    }

    async fn look_for_use(
        &self,
        idle: Duration,
        is_deletion: bool,
    ) -> Result<UnusedOutcome, Error> {
        if !(LEAST_UNUSED..=MOST_UNUSED).contains(&idle) {
            return Err(Error::invalid(format!(
                "a queue is unused for 1h to 89d, which its history shows, and not for {idle:?}"
            )));
        }
        let home = self.router.own_home();
        let (control, keys, idle_ms) = (home.control(), home.keys(), idle.as_millis());
        patiently(|| control.unlink_unused(keys, idle_ms, is_deletion)).await
    }

    /// Removes the queue with all its messages; returns whether it existed. Each partition is
    /// removed in one step, the home last: if the call fails halfway, pushes are refused until the
    /// same call is repeated. In a store that the queue has left, only what says where it is. Claimed deliveries return `Gone` from then on. Live workers report
    /// that the store was emptied, and serve the queue again after the next push. The library does
    /// not repeat the call when its reply is lost.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the queue has another layout;
    /// [`ErrorKind::Server`](crate::ErrorKind::Server) if one of its keys has a wrong type, so that
    /// another program uses it. In both cases nothing is deleted.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// orders.push("rate it").await?;
    /// assert!(orders.delete().await?);
    /// assert!(!orders.exists().await?);
    /// # });
    /// ```
    pub async fn delete(&self) -> Result<bool, Error> {
        if let Some(home) = self.router.left_home().await? {
            let deleted = home.control().delete_keys(home.keys()).await?;
            self.router.stay().await?;
            return Ok(deleted);
        }
        let home = Arc::clone(Box::pin(self.router.learned()).await.home());
        let epoch = match home.call(Verb::Stats, &[], Repeat::Harmless).await {
            // A damaged queue can be deleted, too. Keys of other programs are recognised by their
            // type below.
            Err(error) if error.kind() != ErrorKind::Server => return Err(error),
            Err(_) => match home.stored_map().await {
                Err(error) if error.kind() != ErrorKind::Server => return Err(error),
                stored => stored
                    .ok()
                    .and_then(|stored| stored.map)
                    .map(|map| map.epoch),
            },
            Ok(reply) => reply.header.epoch,
        };
        if epoch.is_some() {
            self.router.delete_others(None).await?;
        }
        let deleted = home.control().delete_keys(home.keys()).await;
        if epoch.is_none() {
            return deleted;
        }
        let deleted = deleted.map_err(|error| error.after("the other partitions were deleted"))?;
        let read = self.router.refresh(&self.router.current()).await;
        read.map_err(|error| error.after("the queue was deleted"))?;
        Ok(deleted)
    }
}

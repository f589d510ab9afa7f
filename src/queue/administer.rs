//! The calls of operators on a whole queue: pause, resume, requeue all, purge, delete.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::model::codec::Codec;
use crate::model::due::MAX_DELAY_MS;
use crate::model::outcomes::State;
use crate::partition::Partition;
use crate::protocol::limits::MAX_ITEMS;
use crate::protocol::results::administer::Step;
use crate::protocol::verbs::Verb;
use crate::queue::Queue;
use crate::server::patience::{Repeat, patiently};

impl<C: Codec> Queue<C> {
    /// Whether the queue exists: from its first push, pause or configure until it is deleted.
    ///
    /// Every role has the right to this call.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// assert!(!orders.exists().await?);
    /// orders.push("rate it").await?;
    /// assert!(orders.exists().await?);
    /// # });
    /// ```
    pub async fn exists(&self) -> Result<bool, Error> {
        let home = self.router.home();
        patiently(|| home.control().has(home.keys().meta())).await
    }

    /// The ids of live workers that may be of a release before 0.2. They stop when the queue gets a
    /// newer layout: see [`ScheduleSet::apply`](crate::ScheduleSet::apply). Empty if there is no such
    /// queue.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// assert!(orders.older_nodes().await?.is_empty());
    /// # });
    /// ```
    pub async fn older_nodes(&self) -> Result<Vec<String>, Error> {
        self.router.home().older_nodes().await
    }

    /// Revives all messages that are dead now, the oldest first, 1,000 a call; returns how many. A
    /// message that dies again meanwhile stays dead. If the future is dropped, or fails halfway,
    /// some are revived: the same call does the rest.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// delivery.bury("the bank is closed").await?;
    /// assert_eq!(orders.requeue_all().await?, 1);
    /// # });
    /// ```
    pub async fn requeue_all(&self) -> Result<u64, Error> {
        let requeue = |partition| requeue_dead(partition, None);
        self.step_all("requeued", requeue).await
    }

    /// As [`requeue_all`](Queue::requeue_all), of the messages that died at or before this time, in
    /// Unix milliseconds of the server. What died later stays dead.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// let before_ms = delivery.due_ms() - 1;
    /// delivery.bury("the bank is closed").await?;
    /// assert_eq!(orders.requeue_before(before_ms).await?, 0);
    /// assert_eq!(orders.requeue_before(before_ms + 60_000).await?, 1);
    /// # });
    /// ```
    pub async fn requeue_before(&self, unix_ms: u64) -> Result<u64, Error> {
        let requeue = move |partition| requeue_dead(partition, Some(unix_ms));
        self.step_all("requeued", requeue).await
    }

    /// Removes the messages in one state, scheduled, ready or dead, 1,000 a call. It ends when the
    /// state is empty, or when as many are removed as there were at the start; returns how many.
    /// Leased messages cannot be purged:
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::State;
    ///
    /// orders.push("rate it").delay(std::time::Duration::from_secs(60)).await?;
    /// assert_eq!(orders.purge(State::Scheduled).await?, 1);
    /// assert!(orders.purge(State::Leased).await.is_err());
    /// # });
    /// ```
    pub async fn purge(&self, state: State) -> Result<u64, Error> {
        self.purge_state(state, None).await
    }

    /// As [`purge`](Queue::purge), of the messages whose time is at or before this one, in Unix
    /// milliseconds of the server. Of scheduled and ready messages it is their due time, so that
    /// `purge_before(State::Ready, ms)` removes what could be claimed since then; of dead ones when
    /// they died.
    ///
    /// Each 1,000 ready messages cost one scan of their list, which has at most 1,000.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::{Due, State};
    ///
    /// orders.push("rate it").due(Due::at_ms(2_000_000_000_000)).await?;
    /// orders.push("rate it").due(Due::at_ms(2_000_000_000_001)).await?;
    /// assert_eq!(orders.purge_before(State::Scheduled, 2_000_000_000_000).await?, 1);
    /// # });
    /// ```
    pub async fn purge_before(&self, state: State, unix_ms: u64) -> Result<u64, Error> {
        self.purge_state(state, Some(unix_ms)).await
    }

    async fn purge_state(&self, state: State, until_ms: Option<u64>) -> Result<u64, Error> {
        if state == State::Leased {
            return Err(Error::invalid(
                "leased messages cannot be purged: their handlers have them",
            ));
        }
        let purge = move |partition| purge_state(partition, state, until_ms);
        self.step_all("purged", purge).await
    }

    /// Pauses claims. Pushes, settlements and the reaping of expired leases continue.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// orders.push("rate it").await?;
    /// orders.pause().await?;
    /// assert!(orders.claim(1, std::time::Duration::from_secs(30)).await?.is_empty());
    /// # });
    /// ```
    pub async fn pause(&self) -> Result<(), Error> {
        self.call_all(Verb::Pause, |_| Vec::new(), Repeat::Harmless)
            .await
            .map(drop)
    }

    /// Pauses claims for some time: 1 ms to 100 years, by the server's clock. The queue opens by
    /// itself, and workers then claim at once. A queue that is closed for longer stays so. Pushes,
    /// settlements and the reaping of expired leases continue, and so do deliveries that workers
    /// have. `resume` opens the queue earlier.
    ///
    /// Clients with the scripts of release 0.1 go on claiming. If the reply is lost and the call
    /// repeated, the time counts from the repetition. Each partition counts from its own call.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the time is out of range. If a
    /// partition cannot be reached, the error names it and how many are closed.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use std::time::Duration;
    ///
    /// orders.pause_for(Duration::from_secs(30)).await?;
    /// assert!(orders.stats().await?.closed_ms > 29_000);
    /// # });
    /// ```
    pub async fn pause_for(&self, duration: Duration) -> Result<(), Error> {
        let duration_ms = duration.as_nanos().div_ceil(1_000_000);
        if duration_ms == 0 || duration_ms > u128::from(MAX_DELAY_MS) {
            return Err(Error::invalid(format!(
                "a pause lasts 1 ms to 100 years, not {duration:?}; pause() has no end"
            )));
        }
        let args = |_| vec![duration_ms.to_string().into_bytes()];
        self.call_all(Verb::Pause, args, Repeat::Harmless)
            .await
            .map(drop)
    }

    /// Resumes claims, and opens a queue that is closed for some time.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// orders.pause().await?;
    /// orders.resume().await?;
    /// assert!(!orders.stats().await?.paused);
    /// # });
    /// ```
    pub async fn resume(&self) -> Result<(), Error> {
        self.call_all(Verb::Resume, |_| Vec::new(), Repeat::Harmless)
            .await
            .map(drop)
    }

    /// Removes the queue with all its messages; returns whether it existed. A partition is removed in
    /// one step, and of several the home last: if the call fails halfway, pushes are refused until
    /// the same call is repeated. Claimed deliveries return `Gone` from then on. Live workers report that the store was emptied, and
    /// serve the queue again after the next push. Not repeated when the reply is lost.
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
        let home = self.router.home();
        let epoch = match home.call(Verb::Stats, &[], Repeat::Harmless).await {
            // A damaged queue can be deleted too. Keys of other programs are found by their type.
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
            self.router.delete_others().await?;
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

/// Revives the messages of one partition that are dead now. Returns how many, and the epoch that
/// the partition has.
async fn requeue_dead(
    partition: Arc<Partition>,
    until_ms: Option<u64>,
) -> Result<(u64, Option<u64>), Error> {
    let (mut total, mut began_ms) = (0, None);
    let mut until = text_of(until_ms);
    loop {
        let limit = MAX_ITEMS.to_string();
        let args: [&[u8]; 3] = [b"oldest", limit.as_bytes(), until.as_bytes()];
        let reply = partition.call(Verb::Requeue, &args, Repeat::Unsafe).await;
        let step = Step::decode(reply.map_err(|error| after(error, total, "requeued"))?)?;
        let now_ms = u64::try_from(step.now_us / 1_000).unwrap_or(0);
        let began_ms = *began_ms.get_or_insert(now_ms);
        until = text_of(Some(until_ms.unwrap_or(began_ms).min(began_ms)));
        total += step.done;
        // The first call finds only messages that were dead before it; `until` makes the later
        // ones leave out messages that died since.
        if step.left == 0 {
            return Ok((total, step.epoch));
        }
    }
}

/// Removes the messages of one partition in this state. Returns how many, and the epoch that the
/// partition has.
async fn purge_state(
    partition: Arc<Partition>,
    state: State,
    until_ms: Option<u64>,
) -> Result<(u64, Option<u64>), Error> {
    let (mut total, mut expected) = (0, None);
    let (limit, until) = (MAX_ITEMS.to_string(), text_of(until_ms));
    loop {
        let args = [
            state.as_str().as_bytes(),
            limit.as_bytes(),
            until.as_bytes(),
        ];
        let reply = partition.call(Verb::Purge, &args, Repeat::Unsafe).await;
        let step = Step::decode(reply.map_err(|error| after(error, total, "purged"))?)?;
        total += step.done;
        let enough = total >= *expected.get_or_insert(step.done + step.left);
        if step.left == 0 || step.done == 0 || enough {
            return Ok((total, step.epoch));
        }
    }
}

/// The time as the scripts read it: at most 15 digits, and nothing for none.
fn text_of(until_ms: Option<u64>) -> String {
    let digits = until_ms.map(|ms| ms.min(999_999_999_999_999).to_string());
    digits.unwrap_or_default()
}

/// The error of a call in steps, of which earlier steps dealt with `total` messages.
fn after(error: Error, total: u64, did: &str) -> Error {
    if total == 0 {
        error
    } else {
        error.after(&format!("{total} messages were {did}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Applied;

    #[test]
    fn a_failed_step_tells_what_the_steps_before_it_did() {
        let failed = |applied| Error::new(ErrorKind::Timeout, applied, "no answer");
        assert_eq!(
            after(failed(Applied::No), 0, "purged").was_applied(),
            Applied::No
        );
        let some = after(failed(Applied::No), 2_000, "purged");
        assert_eq!(
            (some.was_applied(), some.kind()),
            (Applied::Yes, ErrorKind::Timeout)
        );
        assert!(
            some.to_string()
                .contains("2000 messages were purged before that"),
            "{some}"
        );
        assert_eq!(
            after(failed(Applied::Unknown), 2_000, "purged").was_applied(),
            Applied::Unknown
        );
    }
}

//! The calls of operators on a whole queue: pause, resume, requeue all, purge.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::model::codec::Codec;
use crate::model::due::MAX_DELAY_MS;
use crate::model::outcomes::MessageState;
use crate::model::process::DrainOutcome;
use crate::partition::Partition;
use crate::protocol::counts::MAX_ITEMS;
use crate::protocol::results::nodes;
use crate::protocol::verbs::Verb;
use crate::queue::Queue;
use crate::queue::steps::Bulk;
use crate::router::HOME_LIMIT;
use crate::server::patience::{Repeat, patiently};

/// The most nodes that one call drains or resumes.
const MAX_DRAINED: usize = 100;

impl<C: Codec> Queue<C> {
    /// Returns whether the queue exists: from its first push, pause or configure until it is
    /// deleted.
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
        let known = Box::pin(self.router.learned()).await;
        let home = known.home();
        let has = || home.control().has(home.keys().meta());
        match home.within(HOME_LIMIT, has()).await {
            // The other partitions have the queue's map, so the queue exists.
            Err(error) if error.is_retryable() && known.map().is_some() => Ok(true),
            Err(_) => patiently(has).await,
            has => has,
        }
    }

    /// The ids of live workers that may be of a release before 0.2. They stop when the queue gets a
    /// newer layout: see [`ScheduleSet::apply`](crate::schedules::ScheduleSet::apply). Empty if
    /// there is no such queue.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// assert!(orders.older_nodes().await?.is_empty());
    /// # });
    /// ```
    pub async fn older_nodes(&self) -> Result<Vec<String>, Error> {
        self.router.home().older_nodes().await
    }

    /// Revives all messages that are dead now, the oldest first, in script calls of 200 messages.
    /// Returns how many it revived. A message that dies again meanwhile stays dead. If the call
    /// fails halfway or its future is dropped, some messages are revived; calling it again revives
    /// the others.
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

    /// Revives the messages that died at or before this time, in Unix milliseconds of the server,
    /// as [`requeue_all`](Queue::requeue_all) does. Messages that died later stay dead.
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

    /// Removes the messages in one state (scheduled, ready or dead), in script calls of 200
    /// messages. It ends when the state is empty, or when it has removed as many messages as there
    /// were at the start. Returns how many it removed. Leased messages cannot be purged:
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::MessageState;
    ///
    /// orders.push("rate it").delay(std::time::Duration::from_secs(60)).await?;
    /// assert_eq!(orders.purge(MessageState::Scheduled).await?, 1);
    /// assert!(orders.purge(MessageState::Leased).await.is_err());
    /// # });
    /// ```
    pub async fn purge(&self, state: MessageState) -> Result<u64, Error> {
        self.purge_state(state, None).await
    }

    /// Removes the messages whose time is at or before this one, in Unix milliseconds of the
    /// server, as [`purge`](Queue::purge) does. The time of scheduled and ready messages is their
    /// due time, that of dead ones is their death.
    ///
    /// Each 1,000 ready messages cost one scan of their list, which has at most 1,000.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::{Due, MessageState};
    ///
    /// orders.push("rate it").due(Due::at_ms(2_000_000_000_000)).await?;
    /// orders.push("rate it").due(Due::at_ms(2_000_000_000_001)).await?;
    /// assert_eq!(orders.purge_before(MessageState::Scheduled, 2_000_000_000_000).await?, 1);
    /// # });
    /// ```
    pub async fn purge_before(&self, state: MessageState, unix_ms: u64) -> Result<u64, Error> {
        self.purge_state(state, Some(unix_ms)).await
    }

    async fn purge_state(&self, state: MessageState, until_ms: Option<u64>) -> Result<u64, Error> {
        refuse_leased(state)?;
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

    /// Pauses claims for some time: 1 ms to 100 years, by the server's clock. The queue then opens
    /// without a further call, and workers claim at once. If the queue is already closed for
    /// longer, it stays closed for that time. Pushes, settlements and the reaping of expired leases
    /// continue, and so do deliveries that workers have. `resume` opens the queue earlier.
    ///
    /// Clients with the scripts of release 0.1 do not obey it. If the reply is lost and the call
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

    /// Resumes claims, also if the queue is closed until a time.
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
}

impl<C: Codec> Queue<C> {
    /// Drains nodes of the queue, by their ids: [`NodeInfo::id`](crate::inspect::NodeInfo::id). A
    /// drained node claims nothing more of this queue, and pulls of it end without messages. It
    /// goes on with what it has, extends and settles it, beats, and may lead. Other nodes get the
    /// messages; if there is no other, they wait.
    ///
    /// The reply to its next beat tells a node: within a second, or, if it has
    /// [parked](crate::Worker::parking) the queue, before it claims again. The drain ends with
    /// [`resume_nodes`](Queue::resume_nodes), and with the node: a process that starts anew is not
    /// drained. It also ends if a failover undoes the call, or if the queue moves to another store.
    /// A node of a release before 0.2 does not obey it: its
    /// [`NodeInfo::process`](crate::inspect::NodeInfo::process) is `None`.
    ///
    /// The call can be repeated. The caller needs the rights of an operator.
    ///
    /// # Errors
    /// If the home of the queue cannot be reached, or if the server has an older Functions library.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// let nodes = orders.nodes().await?;
    /// let here = |node: &&dueq::inspect::NodeInfo| {
    ///     node.process.as_ref().is_some_and(|process| process.pid == std::process::id())
    /// };
    /// let ids: Vec<_> = nodes.iter().filter(here).map(|node| &node.id).collect();
    /// orders.drain_nodes(&ids).await?;
    /// // ... deploy, profile, debug ...
    /// orders.resume_nodes(&ids).await?;
    /// # });
    /// ```
    pub async fn drain_nodes<N: AsRef<str>>(&self, ids: &[N]) -> Result<Vec<DrainOutcome>, Error> {
        self.set_drained(Verb::Pause, ids).await
    }

    /// Lets drained nodes take messages of the queue again: [`drain_nodes`](Queue::drain_nodes).
    /// They claim after their next beat.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::outcomes::DrainOutcome;
    ///
    /// assert_eq!(orders.resume_nodes(&["nobody"]).await?, [DrainOutcome::Gone]);
    /// # });
    /// ```
    pub async fn resume_nodes<N: AsRef<str>>(&self, ids: &[N]) -> Result<Vec<DrainOutcome>, Error> {
        self.set_drained(Verb::Resume, ids).await
    }

    async fn set_drained<N: AsRef<str>>(
        &self,
        verb: Verb,
        ids: &[N],
    ) -> Result<Vec<DrainOutcome>, Error> {
        let mut outcomes = Vec::new();
        for some in ids.chunks(MAX_DRAINED) {
            let args = |_| {
                let ids = some.iter().map(|id| id.as_ref().as_bytes().to_vec());
                std::iter::once(b"nodes".to_vec()).chain(ids).collect()
            };
            let (_, reply) = self.call_home(verb, &args, Repeat::Harmless).await?;
            outcomes.extend(nodes::drained(reply)?);
        }
        Ok(outcomes)
    }
}

/// Revives the messages of one partition that are dead now. Returns how many, and the epoch of the
/// partition's map.
async fn requeue_dead(
    partition: Arc<Partition>,
    until_ms: Option<u64>,
) -> Result<(u64, Option<u64>), Error> {
    let (mut total, mut until) = (0, until_ms);
    loop {
        let step = Bulk::Requeue
            .step(&partition, MAX_ITEMS, (None, until), 0)
            .await;
        let step = step.map_err(|error| after(error, total, "requeued"))?;
        until = Some(until.map_or(step.now_ms, |until| until.min(step.now_ms)));
        total += step.done;
        // The first call sees only messages that were dead before it. `until` makes the later calls
        // skip messages that died since.
        if step.left == 0 {
            return Ok((total, step.epoch));
        }
    }
}

/// Removes the messages of one partition in this state. Returns how many, and the epoch of the
/// partition's map.
async fn purge_state(
    partition: Arc<Partition>,
    state: MessageState,
    until_ms: Option<u64>,
) -> Result<(u64, Option<u64>), Error> {
    let (mut total, mut expected, mut passed) = (0, None, 0);
    let purge = Bulk::Purge(state);
    loop {
        let step = purge
            .step(&partition, MAX_ITEMS, (None, until_ms), passed)
            .await;
        let step = step.map_err(|error| after(error, total, "purged"))?;
        (total, passed) = (total + step.done, step.passed);
        let enough = total >= *expected.get_or_insert(step.done + step.left);
        if step.left == 0 || step.found_none() || enough {
            return Ok((total, step.epoch));
        }
    }
}

/// Refuses the state leased, because messages with a handler cannot be purged.
pub(super) fn refuse_leased(state: MessageState) -> Result<(), Error> {
    if state == MessageState::Leased {
        return Err(Error::invalid(
            "leased messages cannot be purged: their handlers have them",
        ));
    }
    Ok(())
}

/// The error of a call in steps, whose earlier steps dealt with `total` messages.
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
    use crate::error::{Applied, ErrorKind};

    #[test]
    fn error_of_a_step_says_what_earlier_steps_did() {
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
